"""The master-key signature every request carries.

Specification: "Access control in the Azure Cosmos DB REST API", authorization header of type
`master`. Resource tokens and Entra ID tokens are refused by name.
"""

import base64
import hashlib
import hmac
from urllib.parse import unquote

from local.cosmos.answers import Refusal

# The key every Cosmos DB emulator shares; it is published and protects nothing.
EMULATOR_KEY = (
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
)


class MasterKey:
    """Signs requests, and checks the signatures of others."""

    def __init__(self, key: str) -> None:
        self._secret = base64.b64decode(key)

    def signature(self, verb: str, resource_type: str, link: str, date: str) -> str:
        """The signature of a request; `date` is the value of its x-ms-date header."""
        text = f"{verb.lower()}\n{resource_type}\n{link}\n{date.lower()}\n\n"
        digest = hmac.digest(self._secret, text.encode(), hashlib.sha256)
        return base64.b64encode(digest).decode()

    def check(
        self, header: str | None, *, verb: str, resource_type: str, link: str, date: str
    ) -> None:
        """Raise a 401 Refusal unless the header is this key's signature of the request."""
        fields = token_fields(header)
        if fields.get("type") != "master":
            raise Refusal(401, f"authorization of type {fields.get('type')!r} is not offered")
        expected = self.signature(verb, resource_type, link, date)
        if not hmac.compare_digest(fields.get("sig", "").encode(), expected.encode()):
            raise Refusal(401, "the authorization signature does not match the account key")


def token_fields(header: str | None) -> dict[str, str]:
    """Take `type=..&ver=..&sig=..` apart; a 401 Refusal when there is no header."""
    if not header:
        raise Refusal(401, "the authorization header is missing")
    pairs = (part.partition("=") for part in unquote(header).split("&"))
    return {name: value for name, _, value in pairs}

"""Shared access signatures: which nodes a connection may attach to.

https://learn.microsoft.com/azure/service-bus-messaging/service-bus-sas

The one key is the official emulator's, known to everybody: it guards nothing, but a client that is
configured with another learns of it here and not in Azure. Tokens of Microsoft Entra are refused.
"""

from base64 import b64encode
from hashlib import sha256
from hmac import compare_digest, digest
from urllib.parse import unquote_plus, urlsplit

from proton import Message, int32

from local.servicebus.broker import Broker
from local.servicebus.refusal import Condition, Refused
from local.servicebus.requests import Respond

KEY_NAME, KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"
SCHEME = "SharedAccessSignature "
STATUS_ACCEPTED, STATUS_UNAUTHORIZED = 202, 401


class Authorization:
    """The grants of one connection: paths, each with all that lies below it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._grants: dict[str, float] = {}  # path to the time, in seconds since 1970, of its end

    def respond(self, request: Message, respond: Respond) -> None:
        """Take the token of a `put-token` request, or say why not. Faults do not hit this."""
        try:
            self._grant(str(request.body))
        except Refused as refusal:
            self._broker.gate.count("authorize", refusal.condition.short_name)
            respond(write_answer(refusal))
        else:
            self._broker.gate.count("authorize")
            respond(write_answer(None))

    def check(self, path: str) -> None:
        """Raise Refused unless a token was given that covers the path.

        A link that is attached stays so when the token runs out; in Azure it would not.
        """
        now, wanted = self._broker.now(), path.lower()
        for granted, until in self._grants.items():
            if until > now and (granted in ("", wanted) or wanted.startswith(f"{granted}/")):
                return
        raise Refused(Condition.UNAUTHORIZED, f"No token was given for {path!r}")

    def _grant(self, token: str) -> None:
        path, until = verify(token)
        if until <= self._broker.now():
            raise Refused(Condition.UNAUTHORIZED, "The token has expired")
        self._grants[path] = until


def verify(token: str) -> tuple[str, float]:
    """The path a token is good for, and until when; refused unless the known key signed it."""
    if not token.startswith(SCHEME):
        raise Refused(Condition.UNAUTHORIZED, "Only shared access signatures are honoured")
    parts = dict(part.partition("=")[::2] for part in token.removeprefix(SCHEME).split("&"))
    name = unquote_plus(parts.get("skn", ""))
    if name != KEY_NAME:
        raise Refused(Condition.UNAUTHORIZED, f"There is no key {name!r}, only {KEY_NAME!r}")
    signed = "{}\n{}".format(parts.get("sr", ""), parts.get("se", ""))
    signature = b64encode(digest(KEY.encode(), signed.encode(), sha256)).decode()
    if not compare_digest(signature, unquote_plus(parts.get("sig", ""))):
        raise Refused(Condition.UNAUTHORIZED, f"The signature is not that of key {KEY_NAME!r}")
    path = urlsplit(unquote_plus(parts["sr"])).path
    return path.strip("/").lower(), float(parts["se"])


def write_answer(result: Refused | None) -> Message:
    """The response to `put-token`."""
    if result is None:
        properties = {"status-code": int32(STATUS_ACCEPTED), "status-description": "Accepted"}
    else:
        properties = {
            "status-code": int32(STATUS_UNAUTHORIZED),
            "status-description": result.description,
            "error-condition": result.condition.value,
        }
    return Message(properties=properties)

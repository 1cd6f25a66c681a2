"""Claims-based security on `$cbs`: which nodes a connection may attach to.

https://learn.microsoft.com/azure/service-bus-messaging/service-bus-sas

The one key is the official emulator's, known to everybody: it protects nothing, but a client that
is configured with another one fails here already and not only in Azure. Tokens of Microsoft Entra
are refused.
"""

from base64 import b64encode
from hashlib import sha256
from hmac import compare_digest, digest
from math import inf
from urllib.parse import unquote_plus, urlsplit

from proton import Message, int32, symbol

from local.servicebus.amqp.errors import STATUS_OF_CONDITION, AmqpError, ErrorCondition
from local.servicebus.broker import Broker
from local.servicebus.entities.catalog import EntityCatalog
from local.servicebus.links.request_response import SendResponse

KEY_NAME, KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"
SCHEME = "SharedAccessSignature "
STATUS_ACCEPTED = 202


class SasAuthorization:
    """The shared access signatures of one connection: paths, each with all that lies below it."""

    def __init__(self, broker: Broker, catalog: EntityCatalog) -> None:
        self._broker = broker
        self._catalog = catalog
        self._expiries: dict[str, float] = {}  # of each path's token, in seconds since 1970

    def handle_request(self, request: Message, send_response: SendResponse) -> None:
        """Accept the token of a `put-token` request, or refuse it. Faults do not hit this."""
        try:
            path, expiry = verify_token(str(request.body))
            if expiry <= self._broker.now():
                raise AmqpError(ErrorCondition.UNAUTHORIZED, "The token has expired")
            # As in Azure, who names no entity of the namespace hears so here already; the SDK
            # for Python makes a failed authentication of it, that for .NET an unknown entity.
            if path:
                self._catalog.find_node(path)
        except AmqpError as refusal:
            self._broker.interceptor.count("authorize", refusal.condition.short_name)
            properties = {
                "status-code": int32(STATUS_OF_CONDITION[refusal.condition]),
                "status-description": refusal.description,
                "error-condition": symbol(refusal.condition.value),
            }
        else:
            self._expiries[path] = expiry
            self._broker.interceptor.count("authorize")
            properties = {"status-code": int32(STATUS_ACCEPTED), "status-description": "Accepted"}
        send_response(Message(properties=properties))

    def grant_all(self) -> None:
        """Grant every path: the client has shown the key itself."""
        self._expiries[""] = inf

    def check(self, path: str) -> None:
        """Raise AmqpError unless a token was given that covers the path.

        A link that is attached stays so when the token expires; in Azure it would not.
        """
        now, wanted = self._broker.now(), path.lower()
        for granted, expiry in self._expiries.items():
            if expiry > now and (granted in ("", wanted) or wanted.startswith(f"{granted}/")):
                return
        raise AmqpError(ErrorCondition.UNAUTHORIZED, f"No token was given for {path!r}")


def verify_token(token: str) -> tuple[str, float]:
    """The path a token is good for, and its expiry; refused unless the known key signed it."""
    if not token.startswith(SCHEME):
        raise AmqpError(ErrorCondition.UNAUTHORIZED, "Only shared access signatures are honoured")
    parts = dict(part.partition("=")[::2] for part in token.removeprefix(SCHEME).split("&"))
    name = unquote_plus(parts.get("skn", ""))
    if name != KEY_NAME:
        raise AmqpError(ErrorCondition.UNAUTHORIZED, f"There is no key {name!r}, only {KEY_NAME!r}")
    signed = "{}\n{}".format(parts.get("sr", ""), parts.get("se", ""))
    signature = b64encode(digest(KEY.encode(), signed.encode(), sha256)).decode()
    if not compare_digest(signature, unquote_plus(parts.get("sig", ""))):
        description = f"The signature is not that of key {KEY_NAME!r}"
        raise AmqpError(ErrorCondition.UNAUTHORIZED, description)
    path = urlsplit(unquote_plus(parts["sr"])).path
    return path.strip("/").lower(), float(parts["se"])

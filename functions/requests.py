"""What every HTTP trigger refuses of a request, before it looks at what it is about."""

from collections import Counter
from urllib.parse import parse_qsl, urlsplit

import azure.functions as func

from shared.domain.errors import InvalidMessage, TooLarge
from shared.domain.message import BODY_BYTES_MAX

# `code` and `clientId` are how the Functions host takes a key.
HOST_PARAMETERS = frozenset({"code", "clientId"})


def require_request(request: func.HttpRequest, parameters: frozenset[str]) -> None:
    """Raise InvalidMessage for an unknown or repeated parameter, TooLarge for such a body."""
    unknown = sorted(request.params.keys() - parameters - HOST_PARAMETERS)
    if unknown:
        raise InvalidMessage(f"unknown query parameter {unknown[0]!r}")
    # The host hands one value over, and which one it is depends on the host.
    given = Counter(name for name, _ in parse_qsl(urlsplit(request.url).query))
    repeated = [name for name, count in given.items() if count > 1]
    if repeated:
        raise InvalidMessage(f"query parameter {repeated[0]!r} is given {given[repeated[0]]} times")
    size = len(request.get_body())
    if size > BODY_BYTES_MAX:
        raise TooLarge(f"the body has {size} bytes, over {BODY_BYTES_MAX}")

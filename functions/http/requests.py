"""The parts of a request that every HTTP trigger reads and refuses before anything else."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import azure.functions as func
from pydantic import BaseModel, ValidationError

from shared.domain.access import Principal
from shared.domain.errors import InvalidBody, InvalidMessage, NotAllowed, TooLarge
from shared.domain.json_text import split_object
from shared.domain.message import BODY_BYTES_MAX
from shared.domain.values import summarise

# `code` and `clientId` are how the Functions host takes a key.
HOST_PARAMETERS = frozenset({"code", "clientId"})
# In the place of a name in a path: the name is the query parameter. Not every name can stand in a
# path: the Functions host hands `a%2Fb` and `a%252Fb` over as the same text, and Azure may answer
# 404 to both before it; `.` and `..` lead elsewhere.
IN_QUERY = "-"
SESSION, SAGA = "session", "key"
# What stands between the commas of a header `Prefer` (RFC 7240), and its name and value: a token,
# or a text in quotes.
PREFERENCE = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"|")+')
NAMED = re.compile(r'\s*([^\s=;,"]+)\s*(?:=\s*([^\s=;,"]+|"(?:[^"\\]|\\.)*"))?\s*(?:;|$)')
COLLECTIONS = {SESSION: "sessions", SAGA: "sagas"}


def require_request(
    request: func.HttpRequest, parameters: frozenset[str], body_bytes_max: int = BODY_BYTES_MAX
) -> None:
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
    if size > body_bytes_max:
        raise TooLarge(f"the body has {size} bytes, over {body_bytes_max}")


def refuse_other_sites(request: func.HttpRequest) -> None:
    """Raise NotAllowed for a change that a page of another site has a browser ask for.

    A browser says where that page stood, and adds no key or token in a header by itself. Other
    programs say nothing, and need no protection.
    """
    said = request.headers
    if request.method == "GET" or said.get("authorization") or said.get("x-functions-key"):
        return
    site, origin = said.get("sec-fetch-site"), said.get("origin")
    # Browsers of before 2023 name the page alone. The host in front may have another name.
    own = {urlsplit(request.url).netloc, said.get("x-forwarded-host")}
    if site not in (None, "same-origin", "none") or (
        site is None and origin is not None and urlsplit(origin).netloc not in own
    ):
        raise NotAllowed("this was sent by a page of another site")


def read_name(
    request: func.HttpRequest,
    what: str,
    parameters: frozenset[str] = frozenset(),
    body_bytes_max: int = BODY_BYTES_MAX,
) -> str:
    """The SESSION or SAGA that a request is about; `parameters` are what else it may have.

    Raises as `require_request` does, and InvalidMessage for a path whose name is ambiguous.
    """
    name = str(request.route_params.get(what, ""))
    if name == IN_QUERY:
        require_request(request, parameters | {what}, body_bytes_max)
        return str(request.params.get(what, ""))
    require_request(request, parameters, body_bytes_max)
    if "%2f" in name.lower():
        raise InvalidMessage(
            f"the {what} {name!r} in the path may have a slash or not:"
            f" put {IN_QUERY!r} in its place, and the {what} into the query parameter {what!r}"
        )
    return name


def path_to(what: str, name: str, then: str = "") -> str:
    """Return the path of a SESSION or SAGA, below `/api/`; `then` follows its name."""
    quoted = quote(name, safe="")
    if "%2f" in quoted.lower() or "%2f" in name.lower() or name in (IN_QUERY, ".", ".."):
        return f"{COLLECTIONS[what]}/{IN_QUERY}{then}?{what}={quoted}"
    return f"{COLLECTIONS[what]}/{quoted}{then}"


def read_whole(
    parameters: Mapping[str, str], name: str, most: int, *, least: int = 0, default: int = 0
) -> int:
    """A whole number among the parameters, or the default; raises InvalidMessage."""
    text = parameters.get(name)
    if not text:
        return default
    if not re.fullmatch("[0-9]{1,19}", text) or not least <= int(text) <= most:
        raise InvalidMessage(f"{name} is a whole number from {least} to {most}")
    return int(text)


def read_wait(prefer: str | None, most: int) -> int | None:
    """The seconds of the preference `wait` (RFC 7240), at most so many; None for no such wish.

    Of several the first counts. One that makes no sense is none, as for every preference.
    """
    for part in PREFERENCE.findall(prefer or ""):
        named = NAMED.match(part)
        if named and named[1].lower() == "wait":
            seconds = (named[2] or "").strip('"')
            is_time = re.fullmatch("[0-9]{1,9}", seconds) and int(seconds)
            return min(int(seconds), most) if is_time else None
    return None


def read_decision(
    model: type[BaseModel], body: bytes, principal: Principal | None
) -> dict[str, Any]:
    """The fields of a person's decision, from JSON; raises InvalidBody.

    Who decided is whom the token names. Only where there is none the caller says who. A body is
    kept as it was given: what nobody touched has the digits that it had.
    """
    try:
        said = model.model_validate_json(body).model_dump()
        members = split_object(body.decode())
        if "body" in members:
            said["body"] = members["body"].encode()
    except ValidationError as error:
        raise InvalidBody(summarise(error)) from error
    except ValueError as error:
        raise InvalidBody(f"body: {error}") from error
    if principal is not None:
        said["who"] = principal.name
    if said["who"] is None:
        raise InvalidBody("who: say who decides")
    return said

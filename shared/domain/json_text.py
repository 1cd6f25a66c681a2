"""JSON that is passed on as it was given: with every digit, and no name twice.

Read and written anew, 12345678901234567.89 would become 1.2345678901234568e+16, 1.10 would become
1.1, and of two members of one name the first would vanish.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

MEMBER = re.compile(r'[\s,]*(?=")')
COLON = re.compile(r"\s*:\s*")


class JsonText(str):
    """The text of a JSON value, as it was given."""

    __slots__ = ()


def keep_json(text: str) -> JsonText:
    """A JSON value as it was given, without the space around it.

    Raises ValueError for what is no JSON, and for an object that says one name twice. No number is
    read, so none can be too long.
    """
    try:
        make_decoder().decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return JsonText(text.strip())


def split_object(text: str) -> dict[str, JsonText]:
    """The members of a JSON object by name, each as it was given; raises ValueError as above."""
    whole = keep_json(text)
    if not whole.startswith("{"):
        raise ValueError("it is no object")
    decoder, members, place = make_decoder(), dict[str, JsonText](), 1
    while found := MEMBER.match(whole, place):
        name, place = decoder.raw_decode(whole, found.end())
        if (colon := COLON.match(whole, place)) is None:
            break
        _, place = decoder.raw_decode(whole, colon.end())
        members[name] = JsonText(whole[colon.end() : place])
    return members


def write_object(members: Mapping[str, Any]) -> str:
    """A JSON object; what is a JsonText stands in it as it was given."""
    written = (
        f"{json.dumps(name)}: {one if isinstance(one, JsonText) else json.dumps(one)}"
        for name, one in members.items()
    )
    return f"{{{', '.join(written)}}}"


def make_decoder() -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=refuse_repeated,
        parse_float=str,
        parse_int=str,
        parse_constant=forbid_constant,
    )


def refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of a JSON object; raises ValueError for a name that is there twice."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the name {name!r} is there twice")
        found[name] = value
    return found


def forbid_constant(name: str) -> None:
    """Raise ValueError for NaN and infinities."""
    raise ValueError(f"{name} is no JSON")

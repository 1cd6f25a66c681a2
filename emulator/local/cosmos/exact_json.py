"""JSON in which a number keeps its text, as it does in an item that is stored and given back.

It counts as a double all the same, in conditions, in an order and in arithmetic. That the service
keeps the text is seen in Azure/azure-sdk-for-js#13645, Azure/azure-cosmos-dotnet-v3#5094 and
Azure/cosmos-explorer#1482; it is documented nowhere.
"""

import json
import marshal
from collections.abc import Callable
from json.encoder import encode_basestring as write_text
from math import isfinite
from operator import attrgetter
from typing import Any, NoReturn, Self

from local.cosmos.responses import BadRequest, NotOffered, write_json

EXACT_MAX = 2**53  # whole numbers are doubles exactly up to here
SHORT = 15  # so few characters are always exact
COSMOS_BINARY = b"\x80"  # what a body in that encoding begins with
BINARY_SETTING = "AZURE_COSMOS_BINARY_ENCODING_ENABLED"  # of .NET's client


class WrittenNumber(float):
    """A double with the text that stood for it, which Python may write otherwise."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        """A ValueError when no double is as large."""
        number = super().__new__(cls, text)
        if not isfinite(number):
            raise ValueError(f"the number {text[:40]} is too large")
        number.text = text
        return number


def read_whole_number(text: str) -> int | float:
    if len(text) <= SHORT and text != "-0":
        return int(text)
    number = WrittenNumber(text)
    return int(text) if abs(number) < EXACT_MAX and text != "-0" else number


def read_decimal(text: str) -> float:
    """Python's own number if it is written so; of many digits that would take long to find out."""
    if len(text) <= SHORT and repr(number := float(text)) == text:
        return number
    return WrittenNumber(text)


def refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


# Made once: it would take as long as reading a small item.
DECODER = json.JSONDecoder(
    parse_int=read_whole_number, parse_float=read_decimal, parse_constant=refuse_constant
)


def read_json(text: str) -> Any:
    """Read JSON; a ValueError when it is none, to which NaN and 1e999 do not belong."""
    return DECODER.decode(text)


def parse_json(text: str | bytes) -> Any:
    """Read a request body; a 400 when it is not JSON."""
    if isinstance(text, bytes) and text.startswith(COSMOS_BINARY):
        raise NotOffered(f"bodies in Cosmos DB's binary encoding: unset {BINARY_SETTING}")
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text))
        return read_json(text)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error


def write_exactly(document: Any) -> str:
    """Write JSON without blanks, each number as it was written."""
    return write_value(document) if holds_written_numbers(document) else write_json(document)


def holds_written_numbers(document: Any) -> bool:
    """Return whether there may be a WrittenNumber in a document.

    No subclass of a number can be marshalled. A walk would take as long as writing the document.
    """
    try:
        marshal.dumps(document)
    except ValueError:
        return True
    return False


def write_object(members: dict[str, Any]) -> str:
    written = [f"{write_text(name)}:{write_value(value)}" for name, value in members.items()]
    return f"{{{','.join(written)}}}"


def write_array(elements: list[Any]) -> str:
    return f"[{','.join(map(write_value, elements))}]"


def write_value(value: Any) -> str:
    return WRITERS.get(type(value), write_json)(value)


WRITERS: dict[type, Callable[[Any], str]] = {
    dict: write_object,
    list: write_array,
    str: write_text,
    int: repr,
    float: repr,
    WrittenNumber: attrgetter("text"),
}

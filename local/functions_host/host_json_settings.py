"""App settings that overrule `host.json`: `AzureFunctionsJobHost__<path, joined by __>`."""

from collections.abc import Mapping
from typing import Any

from local.functions_host.refusal import Refused

PREFIX = "AzureFunctionsJobHost__"


def overruled(document: Any, settings: Mapping[str, str]) -> Any:
    """The document with every such setting put in; one below a value that is no object is Refused.

    Truth values and whole numbers are read as such, all else as text.
    """
    for name in sorted(settings):
        if name.startswith(PREFIX):
            path = name.removeprefix(PREFIX).split("__")
            document = with_value(document, path, value_of(settings[name]), name)
    return document


def with_value(document: Any, path: list[str], value: Any, setting: str) -> Any:
    """A copy of the document with a value at the path."""
    if not isinstance(document, dict):
        raise Refused(f"the app setting {setting} lies below a value of host.json")
    first, *rest = path
    inner = with_value(document.get(first, {}), rest, value, setting) if rest else value
    return {**document, first: inner}


def value_of(text: str) -> bool | int | str:
    """A setting's text as the value it stands for."""
    match text.lower():
        case "true":
            return True
        case "false":
            return False
        case digits if digits.isdecimal():
            return int(digits)
        case _:
            return text

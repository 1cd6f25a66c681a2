"""How .NET writes values that reach a Python function as text."""

import base64
import json
import re
from datetime import UTC, datetime
from typing import Any

ISO_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,7})?(?:Z|[+-]\d\d:\d\d)?")


def date_json(moment: datetime) -> str:
    """A date as Newtonsoft writes one of unspecified kind: no zone, no trailing zeros."""
    text = moment.replace(tzinfo=None).isoformat()
    return text.rstrip("0") if moment.microsecond else text


def invariant_text(value: Any) -> str:
    """A JSON scalar turned into text by the invariant culture.

    Newtonsoft takes strings that look like ISO dates for dates, so they change their form, and
    Python's worker cannot read them back.
    """
    match value:
        case bool():
            return "True" if value else "False"
        case str() if ISO_DATE.fullmatch(value):
            return invariant_date(value)
        case _:
            return str(value)


def invariant_date(text: str) -> str:
    """An ISO date as `MM/dd/yyyy HH:mm:ss`, in UTC as on the platform's machines."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC)
    return moment.strftime("%m/%d/%Y %H:%M:%S")


def plain_json(properties: Any) -> str:
    """Application properties as a JSON object."""
    named = {as_text(name): value for name, value in properties.items()}
    return json.dumps(named, default=as_text, ensure_ascii=False)


def as_text(value: Any) -> str:
    """Values JSON has no form for: bytes in base64, the rest in their own words."""
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return str(value)

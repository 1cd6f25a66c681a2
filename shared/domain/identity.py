"""The identity of a message whose sender can set no attributes: the id is taken from the body."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from shared.domain.errors import InvalidMessage
from shared.domain.handler import Handler, Handlers, session_pattern
from shared.domain.wire import PREFIX, SPEC_VERSION, attributes_of


def identify(
    handlers: Handlers,
    properties: Mapping[str, object],
    body: bytes,
    session: str | None,
    enqueued_at: datetime | None,
) -> Mapping[str, object]:
    """The properties with what they lack of id, type, session and time; the same with an id.

    `session` and `enqueued_at` are the broker's: by that time each copy says how old it is, so that
    one is refused whose first copy may be forgotten. The type is the one that the properties name,
    or the only one with `id_from` that is for this session. Its name is part of the source, so the
    same value in bodies of two types is two ids. Raises InvalidMessage where the body gives no id.
    """
    attributes = attributes_of(properties, is_strict=False)
    named = attributes.get("partitionkey", session)
    handler = handler_of(handlers, attributes.get("type"), named)
    if "id" in attributes or handler is None:
        return properties
    given: dict[str, object] = {
        "specversion": SPEC_VERSION,
        "type": handler.message_type,
        "partitionkey": named,
        "source": f"body:{handler.message_type}",
        "id": read_id(handler, body),
    }
    if enqueued_at is not None:
        given["time"] = enqueued_at.isoformat()
    added = {f"{PREFIX}{name}": value for name, value in given.items() if name not in attributes}
    return {**properties, **added}


def handler_of(handlers: Handlers, message_type: object, session: object) -> Handler | None:
    """The handler that takes the id from the body, or None where none does, or several could."""
    found = [
        one
        for one in handlers.by_type.values()
        if one.id_from is not None
        and (one.message_type == message_type if message_type else fits(one, session))
    ]
    return found[0] if len(found) == 1 else None


def fits(handler: Handler, session: object) -> bool:
    """Say whether a type may be for a session; one without patterns is for any."""
    patterns = handler.sessions or ("*",)
    return isinstance(session, str) and any(session_pattern(p).fullmatch(session) for p in patterns)


def read_id(handler: Handler, body: bytes) -> str:
    """The id that a body holds for its type. Raises InvalidMessage, which says why it has none."""
    what = f"the id of a message of type {handler.message_type!r}"
    try:
        content: Any = json.loads(body)
        of_body = handler.id_from
        found = of_body(content) if callable(of_body) else content[of_body]
    except (Exception, SystemExit) as error:
        raise InvalidMessage(
            f"{what} cannot be taken from its body: {type(error).__name__}: {error}"
        ) from error
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise InvalidMessage(f"{what} in its body is neither text nor a whole number: {found!r}")
    return str(found)

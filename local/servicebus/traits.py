"""What a filter can see of a message: some of its properties, never its body."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from proton import Message as AmqpMessage
from proton import ProtonException

from local.servicebus.sections import (
    APPLICATION_PROPERTIES,
    PROPERTIES,
    Section,
    identity,
    sections,
)


class Trait(StrEnum):
    """A property that every message may have; the values are those of `Config.json`."""

    CORRELATION_ID = "CorrelationId"
    MESSAGE_ID = "MessageId"
    TO = "To"
    REPLY_TO = "ReplyTo"
    LABEL = "Label"  # AMQP's subject
    SESSION_ID = "SessionId"
    REPLY_TO_SESSION_ID = "ReplyToSessionId"
    CONTENT_TYPE = "ContentType"


INDEXES = {  # in the properties section (part 3, section 3.2.4)
    Trait.MESSAGE_ID: 0,
    Trait.TO: 2,
    Trait.LABEL: 3,
    Trait.REPLY_TO: 4,
    Trait.CORRELATION_ID: 5,
    Trait.CONTENT_TYPE: 6,
    Trait.SESSION_ID: 10,
    Trait.REPLY_TO_SESSION_ID: 12,
}


@dataclass(frozen=True, slots=True)
class Traits:
    """System properties as text, those left out missing; application properties as sent."""

    system: Mapping[Trait, str]
    application: Mapping[str, Any] = field(default_factory=dict)


def read_traits(encoded: bytes) -> Traits:
    """The traits of an encoded message."""
    traits = Traits({})
    for section in sections(encoded):
        if section.code == PROPERTIES:
            traits = replace(traits, system=read_system(encoded, section))
        elif section.code == APPLICATION_PROPERTIES:
            part = encoded[section.start : section.end]
            traits = replace(traits, application=read_application(part))
    return traits


def read_system(encoded: bytes, section: Section) -> dict[Trait, str]:
    """Those of the properties that filters can see, where they are given."""
    found = {trait: identity(encoded, section, index) for trait, index in INDEXES.items()}
    return {trait: value for trait, value in found.items() if value is not None}


def read_application(section: bytes) -> dict[str, Any]:
    """The application properties; none where their keys are not text, as they must be."""
    message = AmqpMessage()
    try:
        message.decode(section)
    except (ProtonException, TypeError, ValueError):
        return {}
    sent: dict[Any, Any] = message.properties or {}
    return {str(key): value for key, value in sent.items()}

"""The place of a message in a trace: W3C `traceparent`, the CloudEvents extension.

Outputs are the same bytes whoever makes them, and `traceparent` is one of their properties. So the
span that an output follows from is not one that some worker opened: the span of a message's
*effect* has an id that is derived from what identifies the message. There is one effect, so there
is one such span, whichever region commits it, and everybody knows its id beforehand.
https://www.w3.org/TR/trace-context/
https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/extensions/distributed-tracing.md
"""

from dataclasses import dataclass
from typing import Self

from shared.domain.message import Message, derive_id

SAMPLED, UNDECIDED = "01", "00"


def derive_traceparent(*parts: str, flags: str = SAMPLED) -> str:
    """The beginning of a trace that everybody finds who knows these parts; nobody carries it."""
    return f"00-{derive_id('trace', *parts)}-{derive_id('span', *parts)[:16]}-{flags}"


def sample_trace(ratio: float, *parts: str) -> str | None:
    """`derive_traceparent` for so many of all messages, from 0 to 1; None for the others.

    Whoever asks for the same message, however often, gets the same answer.
    """
    traceparent = derive_traceparent(*parts)
    return traceparent if int(traceparent[3:11], 16) < ratio * 2**32 else None


@dataclass(frozen=True, slots=True)
class Trace:
    """The place of a message in a trace: what it follows from, and the span of its effect."""

    traceparent: str
    effect: str

    @classmethod
    def of(cls, message: Message) -> Self:
        """The place of a message that has one."""
        effect = derive_id("effect", *message.identity_parts)[:16]
        return cls(message.traceparent or "", effect)

    @property
    def following(self) -> str:
        """The `traceparent` of everything that follows from the effect."""
        version, trace, _, flags = self.traceparent.split("-")
        return f"{version}-{trace}-{self.effect}-{flags}"

"""A person's decisions about what needs attention: what each is about, and what it must say."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from shared.domain.errors import InvalidMessage
from shared.domain.journal import WHO_CHARACTERS_MAX, WHY_CHARACTERS_MAX, Resolution
from shared.domain.message import require_line
from shared.domain.standstill import Standstill, StandstillKind

# A position has twelve digits.
POSITION_MAX = 10**12 - 1


class ResolutionAction(StrEnum):
    RETRY = "retry"
    EDIT = "edit"
    SKIP = "skip"
    HAPPENED = "happened"
    NOT_HAPPENED = "not-happened"
    SET_STATE = "set-state"
    SKIP_NUMBER = "skip-number"
    CLOSE = "close"
    DELIVER = "deliver"
    REDIRECT = "redirect"
    DROP = "drop"
    ERASE = "erase"
    END = "end"


# What an action must say, and what it may say besides who decided and why.
ARGUMENTS: dict[ResolutionAction, tuple[frozenset[str], frozenset[str]]] = {
    ResolutionAction.RETRY: (frozenset(), frozenset({"at", "queue"})),
    ResolutionAction.EDIT: (frozenset(), frozenset({"at", "body", "type"})),
    ResolutionAction.SKIP: (frozenset(), frozenset({"at"})),
    ResolutionAction.HAPPENED: (frozenset({"step"}), frozenset({"at", "body"})),
    ResolutionAction.NOT_HAPPENED: (frozenset({"step"}), frozenset({"at"})),
    ResolutionAction.SET_STATE: (frozenset({"body"}), frozenset({"at"})),
    ResolutionAction.SKIP_NUMBER: (frozenset({"group", "number"}), frozenset()),
    ResolutionAction.CLOSE: (frozenset({"at"}), frozenset()),
    ResolutionAction.DELIVER: (frozenset(), frozenset()),
    ResolutionAction.REDIRECT: (frozenset({"queue", "to"}), frozenset({"at"})),
    ResolutionAction.DROP: (frozenset({"queue"}), frozenset({"at"})),
    ResolutionAction.ERASE: (frozenset(), frozenset()),
    ResolutionAction.END: (frozenset(), frozenset()),
}

# What a person can do about each.
VERBS = {
    StandstillKind.HALT: (ResolutionAction.RETRY, ResolutionAction.EDIT, ResolutionAction.SKIP),
    StandstillKind.UNKNOWN: (
        ResolutionAction.HAPPENED,
        ResolutionAction.NOT_HAPPENED,
        ResolutionAction.SKIP,
    ),
    StandstillKind.ALERT: (ResolutionAction.CLOSE,),
    StandstillKind.REFUSED: (ResolutionAction.CLOSE,),
    StandstillKind.BLOCKED: (
        ResolutionAction.RETRY,
        ResolutionAction.REDIRECT,
        ResolutionAction.DROP,
    ),
    StandstillKind.GAP: (ResolutionAction.SKIP_NUMBER,),
    StandstillKind.PENDING: (ResolutionAction.DELIVER,),
}


def verbs_of(standstill: Standstill) -> list[dict[str, Any]]:
    """Return the verbs that end this, each as a resolution that lacks who decided and why.

    Newer code comes by a deployment, not by a verb.
    """
    if standstill.kind is StandstillKind.GAP and standstill.group is None:
        return []
    about = {
        "at": standstill.position,
        "group": standstill.group,
        "number": standstill.last,
        "queue": standstill.queue,
        "step": standstill.steps[0] if standstill.steps else None,
    }
    known = {name: value for name, value in about.items() if value is not None}
    taken = {action: frozenset().union(*ARGUMENTS[action]) for action in VERBS[standstill.kind]}
    return [
        {"action": action.value} | {name: known[name] for name in known if name in taken[action]}
        for action in taken
    ]


@dataclass(frozen=True, slots=True)
class ResolutionRequest:
    """A person's decision; `body` and `type` are the corrected ones of an edit.

    Of a state that is set `body` is that, and of a `step` that happened its result.
    `at` is the position of the entry it is about; without it, it is about whatever stops the
    session when it is carried out. `number` is the last number of `group` that is skipped. `queue`
    is the one whose blocked outputs it is about, and `to` another one. Raises InvalidMessage.
    """

    action: ResolutionAction
    who: str
    why: str
    body: bytes | None = None
    at: int | None = None
    type: str | None = None
    group: str | None = None
    number: int | None = None
    queue: str | None = None
    to: str | None = None
    step: str | None = None

    def __post_init__(self) -> None:
        require_line("name of who decided", self.who, WHO_CHARACTERS_MAX)
        require_line("reason", self.why, WHY_CHARACTERS_MAX)
        required, allowed = ARGUMENTS[self.action]
        names = ("at", "body", "type", "group", "number", "queue", "to", "step")
        given = {name for name in names if getattr(self, name) is not None}
        if missing := sorted(required - given):
            raise InvalidMessage(f"{self.action} needs {' and '.join(missing)}")
        if unknown := sorted(given - required - allowed):
            raise InvalidMessage(f"{self.action} does not take {' and '.join(unknown)}")
        if self.action is ResolutionAction.EDIT and not given & {"body", "type"}:
            raise InvalidMessage("an edit needs a body or a type")
        if self.at is not None and not 0 <= self.at <= POSITION_MAX:
            raise InvalidMessage(f"there is no position {self.at}")

    @property
    def resolution(self) -> Resolution:
        return Resolution(self.action.value, self.who, self.why)

"""The steps of a handler that calls the outside: what each is to do, and what is known of it.

A step is one call to the outside. What came of it is kept in the claim of the session, so a handler
that is run again, by whichever worker, is given what is known and calls only what is left. A step
that began and was not answered is unknown: it is asked for, repeated, or decided by a person.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from shared.domain.errors import NotStorable

# So many steps a message has at most.
STEPS_MAX = 100
# The bytes of JSON of one result, which is written in one batch with its claim and the message, and
# those of all results of a message.
RESULT_BYTES_MAX = 800_000
RESULTS_BYTES_MAX = 4 * 1024 * 1024
# Each write of the claim writes again what is in it, so a larger result lies beside it, and so does
# what would make more than this of all together: that costs less from the fourth write on.
RESULT_INLINE_BYTES, RESULTS_INLINE_BYTES = 4_096, 32_768
# The batch that ends a message removes what lies beside, and takes 100 operations. When so many lie
# there, the claim holds more.
BESIDE_MAX = 90
RESULTS_INLINE_BYTES_MAX = 131_072
NAME_CHARACTERS_MAX = 64


class StepStatus(StrEnum):
    """The status of a step that was asked for: what is known of it."""

    BEGUN = "begun"  # it may have happened: no answer is known
    DONE = "done"  # it happened, with the result that is kept
    FAILED = "failed"  # it did not happen, however often it was tried


class Beside(NamedTuple):
    """The position of the claim that a result was put beside, and the bytes of its JSON."""

    position: int
    size: int


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The record of one step. `key` is what the outside was given to recognise it by.

    `result` is there where it is done, as JSON, unless it lies `beside` the claim and was not read;
    `reason` says why it failed.
    """

    key: str
    status: StepStatus
    result: Any = None
    reason: str | None = None
    beside: Beside | None = None


# By the name of the step, in the order in which they were asked for.
type KnownSteps = Mapping[str, StepRecord]
NO_STEPS: KnownSteps = MappingProxyType({})


class OnUnknown(StrEnum):
    """The policy for a step that began and was not answered."""

    HALT = "halt"  # the session waits until a person says whether it happened
    REPEAT = "repeat"  # it is done again: the outside recognises the key


@dataclass(frozen=True, slots=True)
class AskOutside:
    """The policy to ask the outside what became of a step; see `ask`."""

    look_up: Callable[..., Any]


def ask(look_up: Callable[..., Any]) -> AskOutside:
    """Have the outside asked what became of a step that was not answered.

    `look_up(key=...)`, which may be async, returns the step's result where it happened, and raises
    NotDone where it surely did not and will not any more: then the step is done again. Whatever
    else it raises is no answer; after the attempts of the step a person is asked.
    """
    return AskOutside(look_up)


class NotDone(Exception):
    """Raised by the call of a step: this call did nothing outside; by its look-up: no call did."""


class StepError(Exception):
    """An error of a step that no other run of the handler changes: its message is a fault."""


class StepFailed(StepError):
    """A step surely did not happen, however often it was tried.

    The handler may catch this and go another way, which it then goes again. `step` is the name.
    """

    step = ""


class StepUnknown(StepError):
    """A step began and was not answered: a person says whether it happened."""


class StepsChanged(StepError):
    """A handler asks for steps that it may not ask for, or for other ones than before."""


@dataclass(frozen=True, slots=True)
class StepRequest:
    """One step as the handler asks for it.

    `seconds` is the limit of one call, None for that of the handler alone. Raises ValueError for
    what cannot work.
    """

    name: str
    call: Callable[..., Any]
    arguments: tuple[Any, ...]
    key: str
    on_unknown: OnUnknown | AskOutside = OnUnknown.HALT
    attempts: int = 3
    seconds: float | None = None

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= NAME_CHARACTERS_MAX:
            raise ValueError(f"the name of a step has 1 to {NAME_CHARACTERS_MAX} characters")
        if not self.key:
            raise ValueError(f"the key of step {self.name!r} is empty")
        if self.attempts < 1:
            raise ValueError(f"step {self.name!r}: attempts must be 1 or more")
        if self.seconds is not None and self.seconds <= 0:
            raise ValueError(f"step {self.name!r}: seconds must be more than 0")


class StepRunner(Protocol):
    """Runs the steps of one run of a handler."""

    def expect(self, request: StepRequest) -> None:
        """Note that the handler asked for a step, which it has to await."""

    def run(self, request: StepRequest) -> Awaitable[Any]:
        """The result of a step, as JSON. Raises StepFailed where it surely did not happen."""


def unknown_steps(steps: KnownSteps) -> tuple[str, ...]:
    """Return the names of the steps that began and were not answered."""
    return tuple(name for name, one in steps.items() if one.status is StepStatus.BEGUN)


def without_step(steps: KnownSteps, name: str) -> KnownSteps:
    """The steps without one that did not happen, so that it is done when it is asked for."""
    return {other: one for other, one in steps.items() if other != name}


def without_last_failed(steps: KnownSteps) -> KnownSteps:
    """The steps without the last ones that failed, so that these are tried again.

    One before others stays: on its failure the handler did the others, and would leave them out.
    """
    kept = dict(steps)
    for name in reversed(list(steps)):
        if kept[name].status is not StepStatus.FAILED:
            break
        del kept[name]
    return kept


def with_result(steps: KnownSteps, name: str, result: Any) -> KnownSteps:
    """The steps with what is now known to have come of one."""
    return {**steps, name: replace(steps[name], status=StepStatus.DONE, result=result)}


def keep_result(steps: KnownSteps, key: str, result: Any, position: int) -> StepRecord:
    """Return the record of a step that happened, whose result is kept in a claim or beside it.

    `steps` are the others of its message, and `position` is the claim's. Raises NotStorable.
    """
    size = len(json.dumps(result))
    beside = [one.beside.size for one in steps.values() if one.beside]
    inline = len(json.dumps([one.result for one in steps.values() if not one.beside]))
    if size > RESULT_BYTES_MAX:
        raise NotStorable(f"its result has {size} bytes, over {RESULT_BYTES_MAX}")
    if inline + sum(beside) + size > RESULTS_BYTES_MAX:
        raise NotStorable(f"with its result all have over {RESULTS_BYTES_MAX} bytes")
    is_large = size > RESULT_INLINE_BYTES or inline + size > RESULTS_INLINE_BYTES
    if is_large and len(beside) < BESIDE_MAX:
        return StepRecord(key, StepStatus.DONE, result, beside=Beside(position, size))
    if inline + size > RESULTS_INLINE_BYTES_MAX:
        raise NotStorable(
            f"{BESIDE_MAX} results before it are large as well, and no more of them fit"
        )
    return StepRecord(key, StepStatus.DONE, result)


def without_results(steps: KnownSteps) -> KnownSteps:
    """Return what is kept of the steps of a message that has ended: not their results."""
    return {name: replace(one, result=None) for name, one in steps.items()}

"""The gate every call passes: it is counted, and a fault may hit it on the way."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import grpc  # type: ignore[import-untyped]

from local.counters import Counters
from local.faults import Action, Fault, Faults

COMPONENT = "durable"  # all task hubs; one is durable.REGION
HONOURED = frozenset({Action.DOWN, Action.DELAY, Action.STATUS, Action.DROP_ANSWER})
CODES = {
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}


class Aborted(Exception):
    """A call ends with this status instead of an answer."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


def down() -> Aborted:
    """How every call ends while the hub is down."""
    return Aborted(grpc.StatusCode.UNAVAILABLE, "the task hub is down")


class Caller:
    """What the hub's methods ask of a gRPC context: to end the call with a status."""

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """End the call."""
        raise Aborted(code, details)

    def set_code(self, code: grpc.StatusCode) -> NoReturn:
        """Only methods that are not there set a code: end the call."""
        raise Aborted(code, "the method is not honoured")


class Gate:
    """Counts and breaks calls; of the faults' statuses 408, 429 and 503 have codes of their own."""

    def __init__(self, component: str, faults: Faults, counters: Counters) -> None:
        self._component = component
        self._faults = faults
        self._counters = counters

    @property
    def is_down(self) -> bool:
        """Whether nothing may be answered now."""
        return self._faults.is_down(self._component)

    def count(self, operation: str, status: str = "ok") -> None:
        """Count one operation."""
        self._counters.add(self._component, operation, status)

    async def run(self, operation: str, perform: Callable[[], Awaitable[Any]], context: Any) -> Any:
        """Do what is asked and give the answer, or end the call with a status."""
        try:
            answer = await self._perform(operation, perform)
        except Aborted as end:
            self.count(operation, end.code.name.lower().replace("_", "-"))
            return await context.abort(end.code, end.details)
        self.count(operation)
        return answer

    async def _perform(self, operation: str, perform: Callable[[], Awaitable[Any]]) -> Any:
        match self._faults.strike(self._component, operation, among=HONOURED):
            case Fault(action=Action.DOWN):
                raise down()
            case Fault(action=Action.STATUS, status=status):
                code = CODES.get(status, grpc.StatusCode.INTERNAL)
                raise Aborted(code, f"refused with {status}")
            case Fault(action=Action.DELAY, seconds=seconds):
                await asyncio.sleep(seconds)
            case Fault():
                await perform()
                raise Aborted(grpc.StatusCode.UNAVAILABLE, "the answer was dropped")
        return await perform()

"""The steps of handlers under test: which calls were made, and what a person finds of them."""

import json
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from shared.domain.handler import Context, Handler, Kind
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.domain.steps import AskOutside, OnUnknown, StepRecord, StepRequest, StepRunner

WHO = "the test"


@dataclass
class CallLog:
    """The calls of steps in one run: what those that returned gave, and which were made again."""

    results: dict[tuple[str, str], Any] = field(default_factory=dict)
    again: dict[str, OnUnknown | AskOutside] = field(default_factory=dict)

    async def make(self, request: StepRequest, *arguments: Any, key: str) -> Any:
        """Make the call of a step, and note it."""
        if (request.name, key) in self.results:
            self.again[request.name] = request.on_unknown
        result = request.call(*arguments, key=key)
        result = await result if isawaitable(result) else result
        self.results[request.name, key] = result
        return result

    def decide(self, name: str, step: StepRecord, at: int) -> ResolutionRequest:
        """Say what a person says who finds at the other side what this log has."""
        if (name, step.key) not in self.results:
            action = ResolutionAction.NOT_HAPPENED
            return ResolutionRequest(action, WHO, "it did not return", at=at, step=name)
        result = json.dumps(self.results[name, step.key]).encode()
        return ResolutionRequest(
            ResolutionAction.HAPPENED, WHO, "it returned", result, at=at, step=name
        )

    def watch(self, handler: Handler) -> Handler:
        """The handler with its calls noted, and in the thread of the test.

        A thread of its own would let its calls come in another order from run to run.
        """
        if handler.kind in (Kind.PURE, Kind.DETERMINISTIC):
            return handler
        is_async = iscoroutinefunction(handler.handle)

        async def handle(state: Any, body: Any, context: Context) -> Any:
            # Only async handlers have steps, though this one is async in any case.
            if context.steps is not None:
                context.steps = WatchedSteps(context.steps, self) if is_async else None
            returned = handler.handle(state, body, context)
            return await returned if isawaitable(returned) else returned

        return replace(handler, handle=handle)


@dataclass
class WatchedSteps:
    """The steps of a run, with their calls noted in a log."""

    steps: StepRunner
    log: CallLog

    def expect(self, request: StepRequest) -> None:
        self.steps.expect(request)

    def run(self, request: StepRequest) -> Awaitable[Any]:
        return self.steps.run(replace(request, call=partial(self.log.make, request)))

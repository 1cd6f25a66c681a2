"""The work of Durable Functions' worker on an instance: its orchestrator runs again from the start.

durabletask's own executor does it. Each turn goes through the whole history first; what the
orchestrator asks for then must be what the history says that it asked for. Inputs and times are
compared, too, which is more than durabletask does.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from durabletask import task
from durabletask.internal import helpers
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.serialization import JsonDataConverter
from durabletask.worker import _OrchestrationExecutor, _Registry, _RuntimeOrchestrationContext

from functions.triggers.saga_instances import ORCHESTRATOR, saga

REGISTRY = _Registry()  # type: ignore[no-untyped-call]
REGISTRY.add_named_orchestrator(ORCHESTRATOR, cast("Any", saga))
# It says of every answer that comes twice that it is ignored.
QUIET = logging.Logger("replay", logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The result of a turn: what the orchestrator asks for next, and how it ended, if it has."""

    scheduled: tuple[pb.OrchestratorAction, ...]
    status: str | None
    ended: str | None
    failed: str | None


def replay(past: Sequence[pb.HistoryEvent], news: Sequence[pb.HistoryEvent]) -> TurnResult:
    executed = ComparingExecutor(REGISTRY, QUIET, JsonDataConverter()).execute("", past, news)
    scheduled, ended, failed = [], None, None
    for action in executed.actions:
        match action.WhichOneof("orchestratorActionType"), action.completeOrchestration:
            case "completeOrchestration", done if done.failureDetails.errorType:
                failed = f"{done.failureDetails.errorType}: {done.failureDetails.errorMessage}"
            case "completeOrchestration", done:
                ended = json.loads(done.result.value)
            case _:
                scheduled.append(action)
    status = json.loads(executed.encoded_custom_status or "null")
    return TurnResult(() if failed else tuple(scheduled), status, ended, failed)


class ComparingExecutor(_OrchestrationExecutor):
    def process_event(self, ctx: _RuntimeOrchestrationContext, event: pb.HistoryEvent) -> None:
        """Require that the orchestrator asks for what it asked for before."""
        asked = ctx._pending_actions.get(event.eventId)
        if asked is not None and note_action(asked) != event:
            raise task.NonDeterminismError(f"asked for {event}, and now for {asked}")
        super().process_event(ctx, event)


def note_action(action: pb.OrchestratorAction) -> pb.HistoryEvent:
    """Return what the history keeps of an action."""
    if action.HasField("createTimer"):
        return helpers.new_timer_created_event(action.id, action.createTimer.fireAt.ToDatetime())
    task = action.scheduleTask
    return helpers.new_task_scheduled_event(action.id, task.name, task.input.value)

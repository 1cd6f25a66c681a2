"""The one place from which an application imports: handlers, sagas, producers, an app, tests.

What stands in other modules of Lockstep may move from release to release; the names here stay. To
import this module connects to nothing and loads no SDK of Azure: names of modules that need one are
looked up when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shared.domain.errors import (
    AlreadyPublished,
    CallerError,
    ContentConflict,
    FailureReason,
    InvalidBody,
    InvalidClientState,
    InvalidMessage,
    InvalidOptions,
    LockstepError,
    MessageFaulted,
    Misconfigured,
    NotRecorded,
    NotStorable,
    NumbersExhausted,
    OutcomeUnknown,
    ProducerClosed,
    ProducerDisconnected,
    SessionEnded,
    Throttled,
    TooLarge,
    TooOld,
    Unavailable,
    UnknownType,
    UnreadableState,
)
from shared.domain.handler import (
    HERE,
    OUTPUTS,
    Context,
    Dispatch,
    Handled,
    Handlers,
    Kind,
    NoState,
    OnFault,
    Output,
    StateModel,
)
from shared.domain.message import Message
from shared.domain.saga.plan import Command, Plan, Refusal, Stage, Step, Wait, key_of
from shared.domain.saga.record import SagaKinds
from shared.domain.steps import NotDone, OnUnknown, StepFailed, StepsChanged, StepUnknown, ask

if TYPE_CHECKING:
    from functions.app import build_app
    from shared.engine.consume.outcomes import Answered
    from shared.engine.handle.find import find_handlers
    from shared.publishing.asking import Asker
    from shared.publishing.message import MessageBatch, SessionMessage
    from shared.publishing.opening import (
        BlockingProducer,
        open_blocking_producer,
        open_idempotent_producer,
    )
    from shared.publishing.options import (
        IdempotentProducerOptions,
        PartitionPublishingOptions,
        PartitionPublishingProperties,
        RetryMode,
        RetryOptions,
    )
    from shared.publishing.producer import IdempotentProducer
    from shared.settings import InvalidSettings, Settings
    from shared.testkit import Found, Given, Report, asked, exercise, given
    from shared.wiring import connect

__all__ = [
    "HERE",
    "OUTPUTS",
    "AlreadyPublished",
    "Answered",
    "Asker",
    "BlockingProducer",
    "CallerError",
    "Command",
    "ContentConflict",
    "Context",
    "Dispatch",
    "FailureReason",
    "Found",
    "Given",
    "Handled",
    "Handlers",
    "IdempotentProducer",
    "IdempotentProducerOptions",
    "InvalidBody",
    "InvalidClientState",
    "InvalidMessage",
    "InvalidOptions",
    "InvalidSettings",
    "Kind",
    "LockstepError",
    "Message",
    "MessageBatch",
    "MessageFaulted",
    "Misconfigured",
    "NoState",
    "NotDone",
    "NotRecorded",
    "NotStorable",
    "NumbersExhausted",
    "OnFault",
    "OnUnknown",
    "OutcomeUnknown",
    "Output",
    "PartitionPublishingOptions",
    "PartitionPublishingProperties",
    "Plan",
    "ProducerClosed",
    "ProducerDisconnected",
    "Refusal",
    "Report",
    "RetryMode",
    "RetryOptions",
    "SagaKinds",
    "SessionEnded",
    "SessionMessage",
    "Settings",
    "Stage",
    "StateModel",
    "Step",
    "StepFailed",
    "StepUnknown",
    "StepsChanged",
    "Throttled",
    "TooLarge",
    "TooOld",
    "Unavailable",
    "UnknownType",
    "UnreadableState",
    "Wait",
    "ask",
    "asked",
    "build_app",
    "connect",
    "exercise",
    "find_handlers",
    "given",
    "key_of",
    "open_blocking_producer",
    "open_idempotent_producer",
]

_LATER = {
    "functions.app": ("build_app",),
    "shared.engine.consume.outcomes": ("Answered",),
    "shared.engine.handle.find": ("find_handlers",),
    "shared.publishing.asking": ("Asker",),
    "shared.publishing.message": ("MessageBatch", "SessionMessage"),
    "shared.publishing.opening": (
        "BlockingProducer",
        "open_blocking_producer",
        "open_idempotent_producer",
    ),
    "shared.publishing.options": (
        "IdempotentProducerOptions",
        "PartitionPublishingOptions",
        "PartitionPublishingProperties",
        "RetryMode",
        "RetryOptions",
    ),
    "shared.publishing.producer": ("IdempotentProducer",),
    "shared.settings": ("InvalidSettings", "Settings"),
    "shared.testkit": ("Found", "Given", "Report", "asked", "exercise", "given"),
    "shared.wiring": ("connect",),
}
_MODULES = {name: module for module, names in _LATER.items() for name in names}


def __getattr__(name: str) -> Any:
    """Return a name whose module is imported only now. Raises AttributeError for any other."""
    if name not in _MODULES:
        raise AttributeError(f"module 'lockstep' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value

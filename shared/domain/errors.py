"""The one error tree, split by what the caller should do next.

LockstepError
|- CallerError             the request itself is wrong; sending it again cannot help
|  |- InvalidMessage
|  |  `- NotAllowed
|  |- NotAuthenticated
|  |- InvalidBody
|  |- UnknownType
|  |- NotRecorded
|  |- MessageFaulted
|  |- TooOld
|  |- UnknownSession
|  |- UnknownDecision
|  |- ContentConflict
|  |- NotHalted
|  |- NotBlocked
|  |- NotMissing
|  |- NotOpen
|  |- SessionEnded
|  |- NotRepeatable
|  |- InvalidState
|  |- UnreadableState
|  |- NotStorable
|  |  `- TooLarge
|  |- InvalidOptions
|  |- InvalidClientState
|  |- ProducerDisconnected
|  |- ProducerClosed
|  |- AlreadyPublished
|  `- NumbersExhausted
|- Unavailable             nothing happened; try again later
|  |- Throttled
|  |- TooManyWatchers
|  |- NewerState
|  `- Misconfigured        trying again helps only after a person has changed something
`- OutcomeUnknown          it may have happened; read back before anything else

Each has a FailureReason, for callers who know the producers of Event Hubs.
"""

import collections.abc
import enum
from typing import Self


class FailureReason(enum.StrEnum):
    """The reasons of the idempotent producers of Event Hubs, by their names."""

    GENERAL_ERROR = "GeneralError"
    CLIENT_CLOSED = "ClientClosed"
    RESOURCE_NOT_FOUND = "ResourceNotFound"
    MESSAGE_SIZE_EXCEEDED = "MessageSizeExceeded"
    QUOTA_EXCEEDED = "QuotaExceeded"
    SERVICE_BUSY = "ServiceBusy"
    SERVICE_TIMEOUT = "ServiceTimeout"
    SERVICE_COMMUNICATION_PROBLEM = "ServiceCommunicationProblem"
    PRODUCER_DISCONNECTED = "ProducerDisconnected"
    INVALID_CLIENT_STATE = "InvalidClientState"


class LockstepError(Exception):
    """Something Lockstep promises could not be done.

    `is_transient` says that the very same, tried again later, may succeed without anybody's help.
    """

    reason = FailureReason.GENERAL_ERROR
    is_transient = False

    def because(self, causes: collections.abc.Iterable["LockstepError"]) -> Self:
        """The same error, with the reason that its causes share; with its own if they differ."""
        reasons = {cause.reason for cause in causes}
        if len(reasons) == 1:
            self.reason = reasons.pop()
        return self


class CallerError(LockstepError):
    """The request is wrong; nothing was changed, and repeating it cannot help."""


class InvalidMessage(CallerError):
    """A message lacks what it needs, or a field is out of its range."""


class NotAllowed(InvalidMessage):
    """The caller has no right to this, or nobody outside the app may say it, or not here."""


class NotAuthenticated(CallerError):
    """The caller shows no token of Entra ID, where one is asked for."""


class InvalidBody(CallerError):
    """The body is not JSON, or not what the handler of its type expects."""


class UnknownType(CallerError):
    """No handler is registered for the type of the message."""


class NotRecorded(CallerError):
    """The message is for a handler that leaves no record, so nobody can answer for it."""


class MessageFaulted(CallerError):
    """The message that was asked did not take effect: its handler failed, or it was refused.

    Where that halts the session, a person may have it run again, and the same asked later is
    answered by what came of that.
    """


class TooOld(CallerError):
    """The message is older than what its session remembers, so nobody can say what became of it."""


class UnknownSession(CallerError):
    """The session has no entry, so there is nothing to decide about."""


class UnknownDecision(CallerError):
    """There is no bulk decision of this id; each is kept for a month."""


class ContentConflict(CallerError):
    """The id was used before with other content; the earlier content stands."""


class NotHalted(CallerError):
    """No fault stops the session, so there is nothing to resolve."""


class NotBlocked(CallerError):
    """The session has nothing that is blocked at the queue, so there is nothing to decide."""


class NotMissing(CallerError):
    """The number is waited for by no message, or it has come or was skipped before."""


class NotOpen(CallerError):
    """The entry asks for nobody, or somebody has closed it."""


class SessionEnded(CallerError):
    """The session has ended, and takes nothing new until nothing is left of it."""


class NotRepeatable(CallerError):
    """A report cannot be sent again: it was, is gone, or holds no whole rejected delivery."""


class InvalidState(CallerError):
    """The state that was given for a session would not be the same when it is read back."""


class UnreadableState(CallerError):
    """A stored state is of another model, or not what its version says."""


class NotStorable(CallerError):
    """The store will never take what a message would add to the journal."""


class TooLarge(NotStorable):
    """The message adds more to the journal than the store takes in one batch."""

    reason = FailureReason.MESSAGE_SIZE_EXCEEDED


class InvalidOptions(CallerError):
    """The options of a producer contradict themselves or are out of range."""


class InvalidClientState(CallerError):
    """The producer's own numbers contradict the ledger; a new producer must be opened."""

    reason = FailureReason.INVALID_CLIENT_STATE


class ProducerDisconnected(CallerError):
    """A producer with a higher owner level has taken over the session."""

    reason = FailureReason.PRODUCER_DISCONNECTED


class ProducerClosed(CallerError):
    """The producer was closed; nothing can be sent with it any more."""

    reason = FailureReason.CLIENT_CLOSED


class AlreadyPublished(CallerError):
    """The batch was published, so it can neither grow nor be published again."""


class NumbersExhausted(CallerError):
    """The group has no number left in the session; begin a new producer group."""

    reason = FailureReason.QUOTA_EXCEEDED


class Unavailable(LockstepError):
    """The service refused or could not be reached; nothing was changed."""

    reason = FailureReason.SERVICE_COMMUNICATION_PROBLEM
    is_transient = True

    def __init__(self, reason: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds


class Throttled(Unavailable):
    """The store or a namespace is there, but takes no more for the moment."""

    reason = FailureReason.SERVICE_BUSY


class TooManyWatchers(Unavailable):
    """This instance has no place left for one more watcher of a session."""

    reason = FailureReason.SERVICE_BUSY


class NewerState(Unavailable):
    """The session's state is of a newer version than this app knows: newer code goes on with it."""


class Misconfigured(Unavailable):
    """A queue, a container or a right is missing, or a connection is wrong; nothing was changed.

    Unlike other refusals this one lasts until a person changes something outside the app.
    """

    reason = FailureReason.GENERAL_ERROR
    is_transient = False


class OutcomeUnknown(LockstepError):
    """No answer came; the operation may have been applied, or may still be."""

    reason = FailureReason.SERVICE_TIMEOUT
    is_transient = True

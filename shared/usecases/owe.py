"""What no entry owes is safe in one region: the others' copies are then owed in the journal."""

from collections.abc import Collection

from shared.domain.errors import OutcomeUnknown
from shared.domain.outbox import Outbox
from shared.ports import Journal


async def owe_missing(
    journal: Journal, session: str, outbox: Outbox, reached: Collection[str]
) -> Outbox:
    """Owe the outbox to the regions that were not reached; what is owed now is returned.

    Raises OutcomeUnknown where no region was reached: nothing is owed then, so it has to be sent
    again. Raises what `Journal.owe` raises.
    """
    if not reached:
        raise OutcomeUnknown(f"no region surely took what was sent for session {session!r}")
    missing = outbox.delivered(reached)
    if missing.owing:
        await journal.owe(session, missing)
    return missing

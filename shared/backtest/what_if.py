"""The consequences that a message would have had, had it said something else or never come."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from shared.backtest.history import build_history
from shared.backtest.kept_rows import RowsRefused
from shared.backtest.rerun import Change, How, run_again
from shared.backtest.sums import Sums
from shared.domain.handler import Handlers
from shared.ports import Document
from shared.storage.entries import decode_identities

# Sessions that answer each other could go on for ever.
ROUNDS_MAX = 20

# Returns the documents of these sessions, in the order of positions.
type ReadSessions = Callable[[Collection[str]], Mapping[str, Sequence[Document]]]


@dataclass(frozen=True, slots=True)
class WhatIf:
    session: str
    id: str
    change: Change


def read_what_if(text: str) -> WhatIf:
    """Read `{"session", "id", "body"}`, or `"drop": true` in place of a body.

    Raises RowsRefused.
    """
    try:
        match json.loads(text):
            case {"session": str(session), "id": str(name), "drop": True, **others} if not others:
                return WhatIf(session, name, Change(None))
            case {"session": str(session), "id": str(name), "body": body, **others} if not others:
                written = json.dumps(body, ensure_ascii=False, allow_nan=False)
                return WhatIf(session, name, Change(written.encode()))
    except ValueError as error:
        raise RowsRefused(f"what would be otherwise is no JSON: {error}") from None
    raise RowsRefused(
        "what would be otherwise is one object with a session, the id of a message, and either its"
        ' body or "drop": true'
    )


def follow_change(what_if: WhatIf, read: ReadSessions, handlers: Handlers, how: How) -> Sums:
    """Run the message's session on from it, and every session that it would have sent otherwise.

    What other sessions got keeps the place that it had there. What they never got has no place: it
    is counted as left out, and so is what would go on after ROUNDS_MAX rounds. Raises RowsRefused
    where the message is not kept.
    """
    changes = {what_if.session: {what_if.id: what_if.change}}
    tallies: dict[str, Sums] = {}
    waiting = {what_if.session}
    for _ in range(ROUNDS_MAX):
        histories = read(waiting)
        if not tallies and not is_in(what_if, histories.get(what_if.session, ())):
            raise RowsRefused(f"session {what_if.session!r} has no kept message {what_if.id!r}")
        following: set[str] = set()
        for session in sorted(waiting):
            sums = tallies[session] = Sums()
            own = replace(how, goes_on=True, changes=changes[session])
            history = build_history(histories.get(session, ()))
            for one in sums.take(session, run_again(history, handlers, own)):
                if one.is_new:
                    why = "would be sent here for the first time, and has no place in its session"
                    sums.left_out.update([(why, "a message")])
                elif changes.setdefault(one.session, {}).get(one.id) != Change(one.body):
                    changes[one.session][one.id] = Change(one.body)
                    following.add(one.session)
        waiting = following
        if not waiting:
            break
    whole = Sums()
    for sums in tallies.values():
        whole.add(sums)
    why = f"would get other messages for more than {ROUNDS_MAX} rounds"
    whole.left_out.update((why, "a session") for _ in waiting)
    return whole


def is_in(what_if: WhatIf, documents: Sequence[Document]) -> bool:
    return any(one.id == what_if.id for each in documents for one in decode_identities(each))

"""A sender that was killed takes up each session where its ledger ends."""

from collections import deque
from pathlib import Path

from proof.chaos.messages import PURE
from proof.chaos.records import Record
from proof.chaos.sender import make_lanes, read_safe
from proof.chaos.workload import PublishOperation, WorkloadMessage

SESSIONS = [f"N{n}" for n in range(60)]


def workload(path: Path) -> list[PublishOperation]:
    """Three operations of two messages in every session, mixed."""
    operations = [
        PublishOperation(
            name, first, tuple(WorkloadMessage(f"{name}-{first + n}", PURE, "{}") for n in range(2))
        )
        for first in (0, 2, 4)
        for name in SESSIONS
    ]
    with Record(path) as record:
        record.append(*(operation.line() for operation in operations))
    return operations


def note(path: Path, what: str, session: str, first: int) -> None:
    with Record(path) as record:
        record.append({"at": 1.0, "what": what, "session": session, "first": first, "count": 2})


def test_a_first_sender_sends_everything_and_each_session_in_one_lane(tmp_path: Path) -> None:
    operations = workload(tmp_path / "workload")

    lanes = make_lanes(tmp_path / "workload", read_safe(tmp_path / "ledger"))

    homes = {
        session: [n for n, lane in enumerate(lanes) if holds(lane, session)] for session in SESSIONS
    }
    assert all(len(found) == 1 for found in homes.values())
    assert len(lanes) > 1
    assert sorted(sent(lanes), key=str) == sorted(operations, key=str)
    for session in SESSIONS:
        assert [o.first for o in sent(lanes) if o.session == session] == [0, 2, 4]


def test_what_is_safe_is_not_sent_again_and_what_was_only_begun_is(tmp_path: Path) -> None:
    workload(tmp_path / "workload")
    ledger = tmp_path / "ledger"
    note(ledger, "begun", "N1", 0)
    note(ledger, "safe", "N1", 0)
    note(ledger, "begun", "N1", 2)
    note(ledger, "begun", "N2", 0)

    safe = read_safe(ledger)
    left = sent(make_lanes(tmp_path / "workload", safe))

    assert safe == {"N1": 2}
    assert [o.first for o in left if o.session == "N1"] == [2, 4]
    assert [o.first for o in left if o.session == "N2"] == [0, 2, 4]


def holds(lane: deque[PublishOperation], session: str) -> bool:
    return any(operation.session == session for operation in lane)


def sent(lanes: list[deque[PublishOperation]]) -> list[PublishOperation]:
    return [operation for lane in lanes for operation in lane]

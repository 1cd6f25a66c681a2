"""A sender that was killed takes up each session where its ledger ends."""

from pathlib import Path

from proof.chaos.messages import PURE
from proof.chaos.records import Record, RecordFollower, read_lines
from proof.chaos.sender import make_lanes, read_safe
from proof.chaos.workload import PublishOperation, WorkloadMessage

SESSIONS = [f"N{n}" for n in range(60)]
# Three operations of two messages in every session, mixed.
OPERATIONS = [
    PublishOperation(
        name, first, tuple(WorkloadMessage(f"{name}-{first + n}", PURE, "{}") for n in range(2))
    )
    for first in (0, 2, 4)
    for name in SESSIONS
]


def test_what_is_safe_is_not_sent_again_and_all_else_is_in_one_lane_by_session(
    tmp_path: Path,
) -> None:
    with Record(tmp_path / "workload") as workload, Record(tmp_path / "ledger") as ledger:
        workload.append(*(operation.line() for operation in OPERATIONS))
        for what, session, first in (("begun", "N1", 0), ("safe", "N1", 0), ("begun", "N2", 0)):
            ledger.append({"at": 1.0, "what": what, "session": session, "first": first, "count": 2})

    safe = read_safe(tmp_path / "ledger")
    lanes = make_lanes(tmp_path / "workload", safe)

    assert safe == {"N1": 2}
    assert len(lanes) > 1
    for session in SESSIONS:
        (lane,) = (lane for lane in lanes if any(one.session == session for one in lane))
        left = [2, 4] if session == "N1" else [0, 2, 4]
        assert [one.first for one in lane if one.session == session] == left


def test_a_line_that_a_kill_cut_short_spoils_none_after_it_and_is_waited_for(
    tmp_path: Path,
) -> None:
    path = tmp_path / "record"
    path.write_text('{"n":1}\n{"n":')
    follower = RecordFollower(path)
    first = list(follower.read_new())
    with Record(path) as record:
        record.append({"n": 3})

    assert first == [{"n": 1}]
    assert list(read_lines(path)) == [{"n": 1}, {"n": 3}]

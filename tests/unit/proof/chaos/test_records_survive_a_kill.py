"""Records are appended to by processes that may be killed in the middle of a line."""

from pathlib import Path

from proof.chaos.records import Record, RecordFollower, read_lines


def test_what_was_appended_is_read_back_in_its_order(tmp_path: Path) -> None:
    with Record(tmp_path / "record") as record:
        record.append({"n": 1}, {"n": 2})
        record.append({"n": 3})

    assert [line["n"] for line in read_lines(tmp_path / "record")] == [1, 2, 3]


def test_a_line_cut_short_is_left_out_and_spoils_none_after_it(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_text('{"n":1}\n{"n":')

    with Record(path) as record:
        record.append({"n": 3})

    assert [line["n"] for line in read_lines(path)] == [1, 3]


def test_a_record_that_nobody_wrote_has_no_lines(tmp_path: Path) -> None:
    assert list(read_lines(tmp_path / "none")) == []
    assert list(RecordFollower(tmp_path / "none").read_new()) == []


def test_a_follower_reads_each_line_once_and_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_text('{"n":1}\n{"n"')
    follower = RecordFollower(path)

    first = [line["n"] for line in follower.read_new()]
    path.write_text('{"n":1}\n{"n":2}\n')
    second = [line["n"] for line in follower.read_new()]

    assert (first, second, list(follower.read_new())) == ([1], [2], [])

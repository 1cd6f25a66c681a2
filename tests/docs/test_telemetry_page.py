"""docs/telemetry.md names every measure, and what is true of it."""

from shared.domain.measures import MEASURES
from tests.docs.local_page import ROOT

PAGE = (ROOT / "docs/telemetry.md").read_text()


def test_the_page_has_every_measure_as_the_code_has_it() -> None:
    table = PAGE.split("## Metrics")[1].split("## Logs")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `lockstep.")]

    assert rows == [
        f"| `{one.name}` | {one.kind.name.lower()} | {one.unit.strip('{}')} |"
        f" {', '.join(f'`{name}`' for name in one.attributes)} | {one.meaning} |"
        for one in MEASURES
    ]
    assert len({one.name for one in MEASURES}) == len(MEASURES)


def test_the_picture_is_small() -> None:
    assert (ROOT / "docs/trace.svg").stat().st_size < 100_000

"""The day of flights that the demo feeds, run again: no difference, or exactly the planted one."""

import json
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import date
from itertools import takewhile
from pathlib import Path

import pytest

from proof.testbed.flights import (
    GROUP,
    TYPE,
    Flight,
    FlightRejected,
    FlightRow,
    default_source,
    number_statuses,
    parse_day,
    read_flight,
    read_rows,
)
from shared.backtest.__main__ import main
from shared.backtest.app import load_app
from shared.domain.message import Message, Number
from tests.docs.pages import ROOT
from tests.world import POLICY, World, take

pytestmark = pytest.mark.slow

DAY = date(2013, 1, 1)
TRACKING = (ROOT / "functions/handlers/tracking.py").read_text("utf-8")
KEPT, PLANTED = "max(event.delay_minutes or 0, 0)", "min(max(event.delay_minutes or 0, 0), 800)"


def day_of_flights() -> list[Message]:
    """The messages of the first day, each session's in its order."""
    rows = takewhile(lambda row: parse_day(row and row[:3]) == DAY, read_rows(default_source()))
    flights: list[Flight] = []
    seen: set[FlightRow] = set()
    for row in rows:
        with suppress(FlightRejected):
            flights.append(read_flight(row, DAY, seen))
    return [
        Message(f"{session}-{n}", session, TYPE, body.encode(), Number(GROUP, 0, n))
        for session, n, body in number_statuses(flights)
    ]


async def test_a_day_differs_by_the_planted_change_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    app, file = tmp_path / "flights", tmp_path / "day.jsonl"
    (app / "handlers").mkdir(parents=True)
    for name in ("function_app.py", "handlers/__init__.py"):
        (app / name).touch()
    (app / "handlers/tracking.py").write_text(TRACKING)
    world = World(policy=replace(POLICY, keeps_inputs=True), handlers=load_app(app))
    day = day_of_flights()
    await take(world.east, *day)
    sessions = dict.fromkeys(message.session for message in day)
    entries = (entry for session in sessions for entry in world.entries(session))
    file.write_text("\n".join(map(json.dumps, entries)))

    assert main([str(file), "--app", str(app)]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0].startswith(f"{len(day):,} messages of {len(sessions):,} sessions")
    assert said.splitlines()[0].endswith(" 0 did not")

    assert TRACKING.count(KEPT) == 1
    (app / "handlers/tracking.py").write_text(TRACKING.replace(KEPT, PLANTED))
    assert main([str(file), "--app", str(app), "--json"]) == 1
    (only,) = json.loads(capsys.readouterr().out)["differences"]
    assert (only["type"], only["field"]) == (TYPE, "state/delay_minutes")
    # One flight of the day was later than 800 minutes, and counts as such with all before it.
    assert only["count"] == 1
    assert int(only["was"]) - int(only["now"]) == 51

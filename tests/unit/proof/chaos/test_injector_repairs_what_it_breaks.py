"""Every outage is injected and repaired; a run that is broken off starts nothing new."""

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import MagicMock, call

import pytest

from local.testing.control import ControlRefused
from proof.chaos import injector as module
from proof.chaos.injector import FaultInjector
from proof.chaos.plan import MAY_BE_SILENT, OutageKind, PlannedFault
from proof.chaos.progress import RunLog
from proof.chaos.records import Record, read_lines

SECONDS = 0.05


act, move, clear = call.control.act, call.control.move_writes, call.control.clear
REPAIRED = [clear(), act("east", "start"), act("west", "start"), move("east")]


def lost(action: str, region: str = "east") -> object:
    return call.control.arm({"component": "cosmos", "action": action, "region": region})


def injected(outage: OutageKind, action: str) -> list[object]:
    bus = call.control.arm({"component": "servicebus.east", "action": action})
    store = [lost(action), move("west")], [clear(7), move("east")]
    return {
        OutageKind.HOST: [act("east", "kill"), act("east", "start")],
        OutageKind.HOSTS: [act(r, a) for a in ("kill", "start") for r in ("east", "west")],
        OutageKind.CLOUD: [call.kill(), call.start()],
        OutageKind.REGION: [
            *(act("east", "kill"), bus, *store[0]),
            *(*store[1], clear(7), act("east", "start")),
        ],
        OutageKind.NAMESPACE: [bus, clear(7)],
        OutageKind.WRITES: [move("west"), move("east")],
        OutageKind.STORE: [*store[0], *store[1]],
        OutageKind.SENDER: [call.kill(), call.start()],
    }[outage]


@pytest.fixture
def cloud() -> MagicMock:
    """Stands for cloud and sender."""
    cloud = MagicMock(regions=("east", "west"))
    cloud.control.arm.return_value = 7
    return cloud


@pytest.fixture
def log(tmp_path: Path) -> Iterator[RunLog]:
    with Record(tmp_path / "log") as record:
        yield RunLog(record)


def planned_injector(
    cloud: MagicMock, log: RunLog, monkeypatch: pytest.MonkeyPatch, *plan: PlannedFault
) -> FaultInjector:
    monkeypatch.setattr(module, "plan_outages", lambda *_: iter(plan))
    monkeypatch.setattr(module, "plan_degradations", lambda *_: iter(()))
    monkeypatch.setattr(module, "MOVED_AFTER_SECONDS", SECONDS)
    return FaultInjector(cloud, cloud, log, seed=1, pause_factor=1)


@pytest.mark.parametrize(
    ("outage", "is_silent"),
    [(kind, False) for kind in OutageKind] + [(kind, True) for kind in MAY_BE_SILENT],
)
def test_what_an_outage_takes_away_is_repaired_and_recorded(
    outage: OutageKind,
    *,
    is_silent: bool,
    cloud: MagicMock,
    log: RunLog,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    regions = ("east", "west") if outage is OutageKind.HOSTS else ("east",)
    planned = PlannedFault(0.0, SECONDS, outage, regions, is_silent)
    injector = planned_injector(cloud, log, monkeypatch, planned)

    with injector.injecting():
        injector.sequences[0].result(timeout=20)

    assert cloud.mock_calls == injected(outage, "silent" if is_silent else "down") + REPAIRED
    faults = [line for line in read_lines(log.record.path) if line["kind"] == "fault"]
    assert [(fault["component"], fault["what"]) for fault in faults] == [
        (component, str(outage)) for component in planned.components
    ]
    assert all(fault["end"] - fault["begin"] >= SECONDS for fault in faults)


def test_a_region_that_is_only_read_is_lost_with_its_part_of_the_journal_and_moves_no_writes(
    cloud: MagicMock, log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = PlannedFault(0.0, SECONDS, OutageKind.REGION, ("west",))
    injector = planned_injector(cloud, log, monkeypatch, planned)

    with injector.injecting():
        injector.sequences[0].result(timeout=20)

    assert lost("down", "west") in cloud.mock_calls
    assert [one for one in cloud.mock_calls if one in (move("west"), move("east"))] == [
        move("east")
    ]


def test_the_end_of_the_faults_comes_at_once_and_a_host_is_started_until_it_is_up(
    cloud: MagicMock, log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = [ControlRefused("not yet")] * 3
    cloud.control.act.side_effect = [None, *refused, None, None, None]
    endless = PlannedFault(0.0, 3_600.0, OutageKind.HOST, ("west",))
    injector = planned_injector(
        cloud, log, monkeypatch, endless, PlannedFault(7_200.0, 1.0, OutageKind.CLOUD)
    )

    with injector.injecting():
        while act("west", "kill") not in cloud.mock_calls:
            injector.check()

    assert cloud.mock_calls == [act("west", "kill"), *[act("west", "start")] * 4, *REPAIRED]


def test_a_run_that_is_broken_off_starts_nothing_new(
    cloud: MagicMock, log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    injector = planned_injector(cloud, log, monkeypatch)

    with pytest.raises(KeyboardInterrupt), injector.injecting():
        raise KeyboardInterrupt

    assert cloud.mock_calls == [call.kill()]

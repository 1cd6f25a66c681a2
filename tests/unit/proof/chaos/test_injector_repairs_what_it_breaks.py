"""Every outage is injected and repaired; a run that is broken off starts nothing new."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from local.testing.control import ControlRefused
from proof.chaos import injector as module
from proof.chaos.injector import FaultInjector
from proof.chaos.plan import OutageKind, PlannedFault
from proof.chaos.progress import RunLog
from proof.chaos.records import Record, read_lines

SECONDS = 0.05


@dataclass
class FakeCloud:
    """Stands for cloud and sender, and notes what is done to them."""

    done: list[str] = field(default_factory=list)
    refusals: int = 0
    regions: tuple[str, str] = ("east", "west")

    @property
    def control(self) -> "FakeCloud":
        return self

    def act(self, region: str, action: str) -> None:
        if action == "start" and self.refusals:
            self.refusals -= 1
            raise ControlRefused("not yet")
        self.done.append(f"{action} {region}")

    def arm(self, fault: Mapping[str, object]) -> int:
        self.done.append(f"{fault['action']} {fault.get('region', fault['component'])}")
        return 7

    def clear(self, fault: int | None = None) -> None:
        self.done.append("lift all" if fault is None else f"lift {fault}")

    def move_writes(self, region: str) -> None:
        self.done.append(f"writes to {region}")

    def kill(self) -> None:
        self.done.append("kill")

    def start(self) -> None:
        self.done.append("start")


INJECTED = {
    OutageKind.HOST: ["kill east", "start east"],
    OutageKind.HOSTS: ["kill east", "kill west", "start east", "start west"],
    OutageKind.CLOUD: ["kill", "start"],
    OutageKind.REGION: ["kill east", "down servicebus.east", "lift 7", "start east"],
    OutageKind.NAMESPACE: ["down servicebus.east", "lift 7"],
    OutageKind.WRITES: ["writes to west", "writes to east"],
    OutageKind.STORE: ["down east", "writes to west", "lift 7", "writes to east"],
    OutageKind.SENDER: ["kill", "start"],
}
REPAIRED = ["lift all", "start east", "start west", "writes to east"]


@pytest.fixture
def cloud() -> FakeCloud:
    return FakeCloud()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[RunLog]:
    with Record(tmp_path / "log") as record:
        yield RunLog(record)


def planned_injector(
    cloud: FakeCloud, log: RunLog, monkeypatch: pytest.MonkeyPatch, *plan: PlannedFault
) -> FaultInjector:
    monkeypatch.setattr(module, "plan_outages", lambda *_: iter(plan))
    monkeypatch.setattr(module, "plan_degradations", lambda *_: iter(()))
    monkeypatch.setattr(module, "MOVED_AFTER_SECONDS", SECONDS)
    return FaultInjector(cloud, cloud, log, seed=1, pause_factor=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("outage", OutageKind)
def test_what_an_outage_takes_away_is_repaired_and_recorded(
    outage: OutageKind, cloud: FakeCloud, log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    regions = ("east", "west") if outage is OutageKind.HOSTS else ("east",)
    planned = PlannedFault(0.0, SECONDS, outage, regions)
    injector = planned_injector(cloud, log, monkeypatch, planned)

    with injector.injecting():
        injector.sequences[0].result(timeout=20)

    assert cloud.done == INJECTED[outage] + REPAIRED
    faults = [line for line in read_lines(log.record.path) if line["kind"] == "fault"]
    assert [(fault["component"], fault["what"]) for fault in faults] == [
        (component, str(outage)) for component in planned.components
    ]
    assert all(fault["end"] - fault["begin"] >= SECONDS for fault in faults)


def test_the_end_of_the_faults_comes_at_once_and_a_host_is_started_until_it_is_up(
    cloud: FakeCloud, log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.refusals = 3
    endless = PlannedFault(0.0, 3_600.0, OutageKind.HOST, ("west",))
    injector = planned_injector(
        cloud, log, monkeypatch, endless, PlannedFault(7_200.0, 1.0, OutageKind.CLOUD)
    )

    with injector.injecting():
        while "kill west" not in cloud.done:
            injector.check()

    assert cloud.done == ["kill west", "start west", *REPAIRED]


def test_a_run_that_is_broken_off_starts_nothing_new(
    cloud: FakeCloud, log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    injector = planned_injector(cloud, log, monkeypatch)

    with pytest.raises(KeyboardInterrupt), injector.injecting():
        raise KeyboardInterrupt

    assert cloud.done == ["kill"]

"""Every blow is struck and made good again, in fair weather and when the run is broken off."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from chaos import weather as module
from chaos.course import Course
from chaos.plan import Blow, Mishap
from chaos.records import Record, read_lines
from chaos.weather import Weather
from demo.control import ControlRefused

SECONDS = 0.05


@dataclass
class Deeds:
    """Stands for cloud and sender, and notes what is done to them."""

    done: list[str] = field(default_factory=list)
    refusals: int = 0
    regions: tuple[str, str] = ("east", "west")

    @property
    def control(self) -> "Deeds":
        return self

    def act(self, region: str, action: str) -> None:
        if action == "start" and self.refusals:
            self.refusals -= 1
            raise ControlRefused("not yet")
        self.done.append(f"{action} {region}")

    def arm(self, fault: Mapping[str, object]) -> int:
        self.done.append(f"{fault['action']} {fault.get('region', fault['component'])}")
        return 7

    def lift(self, fault: int | None = None) -> None:
        self.done.append("lift all" if fault is None else f"lift {fault}")

    def move_writes(self, region: str) -> None:
        self.done.append(f"writes to {region}")

    def kill(self) -> None:
        self.done.append("kill")

    def start(self) -> None:
        self.done.append("start")


STRUCK = {
    Blow.HOST: ["kill east", "start east"],
    Blow.HOSTS: ["kill east", "kill west", "start east", "start west"],
    Blow.CLOUD: ["kill", "start"],
    Blow.REGION: ["kill east", "down servicebus.east", "lift 7", "start east"],
    Blow.NAMESPACE: ["down servicebus.east", "lift 7"],
    Blow.WRITES: ["writes to west", "writes to east"],
    Blow.STORE: ["down east", "writes to west", "lift 7", "writes to east"],
    Blow.SENDER: ["kill", "start"],
}
FAIR = ["lift all", "start east", "start west", "writes to east"]


@pytest.fixture
def deeds() -> Deeds:
    return Deeds()


@pytest.fixture
def course(tmp_path: Path) -> Iterator[Course]:
    with Record(tmp_path / "course") as record:
        yield Course(record)


def bad(deeds: Deeds, course: Course, monkeypatch: pytest.MonkeyPatch, *plan: Mishap) -> Weather:
    """Weather with this in store."""
    monkeypatch.setattr(module, "blows", lambda *_: iter(plan))
    monkeypatch.setattr(module, "squalls", lambda *_: iter(()))
    monkeypatch.setattr(module, "MOVED_AFTER_SECONDS", SECONDS)
    return Weather(deeds, deeds, course, seed=1, ease=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("blow", Blow)
def test_what_a_blow_takes_is_given_back_and_noted(
    blow: Blow, deeds: Deeds, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    regions = ("east", "west") if blow is Blow.HOSTS else ("east",)
    struck = Mishap(0.0, SECONDS, blow, regions)
    weather = bad(deeds, course, monkeypatch, struck)

    with weather.blowing():
        weather.sequences[0].result(timeout=20)

    assert deeds.done == STRUCK[blow] + FAIR
    bars = [line for line in read_lines(course.record.path) if line["kind"] == "bar"]
    assert [(bar["component"], bar["what"]) for bar in bars] == [
        (component, str(blow)) for component in struck.components
    ]
    assert all(bar["end"] - bar["begin"] >= SECONDS for bar in bars)


def test_a_host_that_does_not_come_up_at_first_is_started_again(
    deeds: Deeds, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    deeds.refusals = 3

    with bad(deeds, course, monkeypatch).blowing():
        pass

    assert deeds.done == FAIR


def test_fair_weather_comes_at_once_and_makes_good_what_is_under_way(
    deeds: Deeds, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = Mishap(0.0, 3_600.0, Blow.HOST, ("west",))
    weather = bad(deeds, course, monkeypatch, endless, Mishap(7_200.0, 1.0, Blow.CLOUD))

    with weather.blowing():
        while "kill west" not in deeds.done:
            weather.check()

    assert deeds.done == ["kill west", "start west", *FAIR]


def test_a_run_that_is_broken_off_starts_nothing_new(
    deeds: Deeds, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    weather = bad(deeds, course, monkeypatch)

    with pytest.raises(KeyboardInterrupt), weather.blowing():
        raise KeyboardInterrupt

    assert deeds.done == ["kill"]


def test_what_goes_wrong_in_the_weather_ends_the_run(
    deeds: Deeds, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    deeds.refusals = 1_000
    weather = bad(deeds, course, monkeypatch, Mishap(0.0, SECONDS, Blow.HOST, ("east",)))

    with pytest.raises(ControlRefused, match="not yet"), weather.blowing():
        check_at_the_end(weather)


def check_at_the_end(weather: Weather) -> None:
    weather.sequences[0].exception(timeout=20)
    weather.check()

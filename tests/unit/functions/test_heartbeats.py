"""Health shows when feeds and timers were heard, whichever instance they ran on."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from functions.http.operate import report_health
from shared.domain.errors import Unavailable
from shared.engine.operate.heartbeats import COMPACT, SWEEP, Heartbeats, InHand
from tests.asking import ask, document
from tests.world import World


@dataclass
class Kept:
    """A container of leases."""

    seconds: dict[str, float] = field(default_factory=dict)
    is_down: bool = False

    async def ages(self) -> Mapping[str, float]:
        if self.is_down:
            raise Unavailable("down")
        return self.seconds

    async def record(self, document_id: str) -> None:
        self.seconds = {**await self.ages(), document_id: 0.0}


async def ages(heartbeats: Heartbeats) -> dict[str, float | None]:
    return {name: age.seconds for name, age in (await heartbeats.ages()).items()}


async def test_each_feed_and_timer_has_the_age_of_its_newest_document() -> None:
    kept = Kept({"east..0": 70.0, "east..1": 3.0, "sagas-east..0": 4.0, "west..0": 1.0})
    heartbeats = Heartbeats(kept, "east", ["east", "west"])

    assert await ages(heartbeats) == {
        "recover": 3.0,
        "begin_sagas": 4.0,
        SWEEP: None,
        COMPACT: None,
        "receive": 0.0,
    }
    await heartbeats.note(SWEEP)
    assert (await ages(heartbeats))[SWEEP] == 0.0


async def test_a_region_whose_name_begins_with_another_ones_does_not_speak_for_it() -> None:
    heartbeats = Heartbeats(Kept({"east2..0": 1.0}), "east", ["east", "east2"])

    assert (await ages(heartbeats))["recover"] is None


async def test_what_is_silent_is_logged_for_the_alert(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept({"east..0": 61.0, "sagas-east..0": 2.0})
    heartbeats = Heartbeats(kept, "east", ["east", "west"])
    await heartbeats.note(SWEEP)

    with caplog.at_level(logging.WARNING, "lockstep.heartbeats"):
        await heartbeats.report()

    assert [record.getMessage() for record in caplog.records] == [
        "nothing was heard of recover for 60 s or more"
    ]


async def test_when_the_leases_are_out_of_reach_nothing_is_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heartbeats = Heartbeats(Kept(is_down=True), "east", ["east"])

    await heartbeats.note(SWEEP)
    await heartbeats.report()

    assert "could not be recorded: down" in caplog.text
    assert "is not known: down" in caplog.text


async def test_health_shows_what_was_heard_and_null_where_that_is_not_known(world: World) -> None:
    kept = Kept({"east..0": 3.0})
    services = replace(world.east, heartbeats=Heartbeats(kept, "east", ["east", "west"]))

    known = await report_health(services, ask(method="GET"))
    kept.is_down = True
    unknown = await report_health(services, ask(method="GET"))

    assert (known.status_code, unknown.status_code) == (200, 200)
    shown = document(known)["heartbeats"]
    assert shown["recover"] == {"secondsAgo": 3.0, "within": 60.0}
    assert shown["sweep"] == {"secondsAgo": None, "within": 120.0}
    assert document(unknown)["heartbeats"] is None


async def test_the_sweep_is_noted_at_once_and_then_not_at_every_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("shared.engine.operate.heartbeats.time.monotonic", lambda: now)
    heartbeats = Heartbeats(Kept(), "east", ["east", "west"])
    due: list[bool] = []
    for _ in range(9):
        due.append(heartbeats.is_due())
        now += 15.0

    assert [run for run, is_due in enumerate(due) if is_due] == [0, 4, 8]


async def test_deliveries_that_do_not_end_show_and_an_idle_worker_never_does(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    monkeypatch.setattr("shared.engine.operate.heartbeats.time.monotonic", lambda: now)
    in_hand = InHand(ended_at=now)
    heartbeats = Heartbeats(Kept(), "east", ["east", "west"], in_hand)

    now += 10_000.0
    assert (await ages(heartbeats))["receive"] == 0.0
    in_hand.began = {1: now, 2: now + 50.0}
    now += 240.0
    assert (await ages(heartbeats))["receive"] == 240.0
    await heartbeats.report()
    assert "receive" not in caplog.text
    now += 1.0
    await heartbeats.report()
    assert "nothing was heard of receive for 240 s or more" in caplog.text

    # One that ends speaks for the others: the host ends by itself what takes too long.
    del in_hand.began[1]
    in_hand.ended_at = now
    assert (await ages(heartbeats))["receive"] == 0.0
    now += 7.0
    assert (await ages(heartbeats))["receive"] == 7.0

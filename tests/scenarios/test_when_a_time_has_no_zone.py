"""When a sender writes a time without a zone, it is UTC wherever the machine stands."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from functions.http.ingest import accept
from shared.domain.errors import InvalidBody
from shared.domain.handler import Context, Handled, Handlers, Output
from shared.domain.saga.plan import Plan
from shared.domain.saga.record import SagaRecord, start_message, start_saga
from shared.testkit.exercise import exercise
from shared.testkit.given import given
from shared.testkit.purity import ZONES, in_zone
from tests.unit.functions.test_ingest import post
from tests.unit.shared.suspects import Note
from tests.world import Account, Amount, World, message

NAIVE = "2026-11-24T23:30:00"


def telling_time(account: Account, _: Amount, context: Context) -> Handled[Account]:
    """Tell the time in every way in which a zone matters, and something that comes later."""
    told = f"{context.now.isoformat()} {context.now.timestamp()} {context.now.astimezone(UTC)}"
    soon = Output("later", Note(text=told), "notes", to="out", after=timedelta(hours=1))
    return Handled(account, (soon,))


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "written",
    [NAIVE, "2026-11-24T23:30:00Z", "2026-11-24t23:30:00z", "2026-11-25T01:30:00+02:00"],
)
def test_when_a_handler_asks_for_the_time_it_is_the_same_on_every_machine(
    written: str, zone: str
) -> None:
    with in_zone(zone):
        now = Context(replace(message(0), time=written)).now

    assert (now.isoformat(), now.tzinfo) == ("2026-11-24T23:30:00+00:00", UTC)


@pytest.mark.parametrize("written", ["noon", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59-14:00"])
def test_when_the_time_is_none_in_utc_its_message_is_a_fault_that_says_so(written: str) -> None:
    with pytest.raises(InvalidBody, match="no ISO 8601 time of the years 1 to 9999 in UTC"):
        _ = Context(replace(message(0), time=written)).now


def test_when_the_testkit_moves_the_machine_such_a_handler_gives_the_same() -> None:
    handlers = Handlers()
    handlers.register("tell", state=Account, body=Amount)(telling_time)

    report = exercise(
        handlers,
        [given("acc-7", "tell", {"amount": 1}, time=NAIVE)],
        runs_max=20,
        hash_seeds=(),
    )

    moment = datetime.fromisoformat(NAIVE).replace(tzinfo=UTC)
    told = f"{moment.isoformat()} {moment.timestamp()} {moment}"
    assert report.outputs() == [{"text": told, "stamp": ""}]
    assert report.messages[0].time == "2026-11-25T00:30:00+00:00"


async def test_when_it_comes_over_http_it_goes_on_with_a_zone(world: World) -> None:
    response = await accept(world.east, post(time=NAIVE))

    assert response.status_code == 202
    (sent,) = world.bus.messages("east", "in")
    assert sent.time == "2026-11-24T23:30:00+00:00"


@pytest.mark.parametrize("zone", ZONES)
def test_when_it_starts_a_saga_its_steps_have_the_time_in_utc(zone: str) -> None:
    started = start_message("o-1", "order.place", b"{}", NAIVE)

    with in_zone(zone):
        begun = start_saga(SagaRecord(), Context(started), lambda: Plan.model_construct(parts=()))

    assert begun.state.at == "2026-11-24T23:30:00+00:00"

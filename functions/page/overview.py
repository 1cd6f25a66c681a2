"""The first page: is each region at work, does anything need attention, and who acts on it?

It reads what the sweeps recorded, so an open tab costs the journal the same however large it is.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import azure.functions as func

from functions.http.operate import read_overview
from functions.http.requests import require_request
from functions.http.routes import HttpRoutes
from functions.page.regions import LATE_SECONDS, draw_hour
from functions.page.view import render, show_problems
from shared.domain.access import Right
from shared.domain.errors import InvalidMessage, LockstepError
from shared.domain.overview import RegionRecord, SagaCount
from shared.domain.saga.record import kinds_of
from shared.domain.standstill import StandstillKind
from shared.engine.build import Services
from shared.engine.operate.health import RegionHealth
from shared.engine.operate.heartbeats import COMPACT, Age

# A browser asks again so often: at 30 s an open tab costs less than 20 request units a minute.
REFRESH_SECONDS = 30
# A look is older than this where no sweep runs in any region.
OLD_SECONDS = 150.0
MEANINGS = {
    StandstillKind.HALT: "sessions that a failed message stops",
    StandstillKind.UNKNOWN: "sessions in which nobody knows whether a step happened",
    StandstillKind.BLOCKED: "outputs that their queue does not take",
    StandstillKind.REFUSED: "outputs that no queue takes",
    StandstillKind.GAP: "sessions in which a number is missing",
    StandstillKind.ALERT: "messages for which a handler asks for a person, and sagas that did not"
    " end as planned",
    StandstillKind.PENDING: "outputs that a region has missed for long",
}
SAGA_MEANINGS = {
    SagaCount.RUNNING: "sagas that are under way, onward or back",
    SagaCount.WAITING: "those among them that come to a wait which nobody has decided yet",
    SagaCount.OVERDUE: "those that take longer than their plan may: stuck, or not decided",
}
routes = HttpRoutes(show_problems)


@dataclass(frozen=True, slots=True)
class RegionState:
    """A region in a word, and why. `rate` and `hour` are messages: of a second, and of the hour.

    They and `waited`, the seconds for which its oldest output has waited, are None where no look
    of the last minutes is recorded.
    """

    name: str
    state: str
    why: str
    is_good: bool
    rate: float | None = None
    hour: int | None = None
    waited: float | None = None


def judge_region(
    region: str, here: str, health: RegionHealth | None, record: RegionRecord, now: int
) -> RegionState:
    """Return how a region is, as it is seen from `here`; `now` is the number of the minute."""
    minutes = record.minutes.get(region, {})
    newest = minutes.get(max(minutes)) if minutes and max(minutes) >= now - 2 else None
    state, why, is_good = describe_state(region, here, health)
    if newest is None:
        return RegionState(region, state, why, is_good)
    hour = round(60 * sum(one.rate for one in minutes.values()))
    return RegionState(region, state, why, is_good, newest.rate, hour, newest.waited)


def describe_state(region: str, here: str, health: RegionHealth | None) -> tuple[str, str, bool]:
    """Return a region's state in a word, why, and whether it is as it should be."""
    if health is None:
        return "not known", "the journal cannot be read from here", False
    places = [place for place in health.missing if place.endswith(f" of {region}")]
    missing = f"; cannot be used: {', '.join(places)}" if places else ""
    if region == here:
        # What runs seldom was not heard for a while after a first start.
        ages = health.heard.here if health.heard else {}
        silent = [name for name, age in ages.items() if age.is_silent and name != COMPACT]
        why = f"nothing is heard of {', '.join(silent)}" if silent else "this page comes from here"
        return ("impaired" if silent or missing else "up"), why + missing, not (silent or missing)
    age: Age | None = health.heard.regions.get(region) if health.heard else None
    if age is None or age.seconds is None:
        return "not known", "it was never heard" + missing, False
    heard = f"heard {age.seconds:.0f} s ago" + missing
    if age.is_silent:
        return "silent", f"{heard}: it is down, or cut off from the journal", False
    if age.seconds > LATE_SECONDS:
        return "late", f"{heard}: it should be each minute", False
    return ("impaired" if missing else "up"), heard, not missing


def explain_actions(states: Sequence[RegionState], record: RegionRecord) -> list[str]:
    """Return what Lockstep does by itself about what is wrong, and what waits for a person."""
    said = []
    lost = [one.name for one in states if one.state in ("silent", "late")]
    left = [one.name for one in states if one.name not in lost]
    if lost and left:
        said.append(
            f"A copy of each message lies in the queue of {' and '.join(left)}, so what"
            f" {' and '.join(lost)} did not process is processed there. Outputs for"
            f" {' and '.join(lost)} wait in the journal, and are delivered in order as soon as"
            " that is possible again. Nothing has to be done in Lockstep for that."
        )
    if StandstillKind.HALT in record.attention:
        said.append(
            "Other sessions go on. What comes for a halted session is parked, and follows in order"
            " after somebody's decision."
        )
    if StandstillKind.GAP in record.attention:
        said.append("What is parked behind a missing number follows when the number comes.")
    if {StandstillKind.BLOCKED, StandstillKind.PENDING} & record.attention.keys():
        said.append("Each sweep tries again to deliver what is blocked or pending.")
    if SagaCount.OVERDUE in record.sagas:
        said.append(
            "Each sweep starts sagas again that nobody drives. A saga that is overdue all the same"
            " waits for a session that is halted, or for a region whose sagas do not run."
        )
    return said


@routes.add("page", "GET operate", Right.LOOK)
async def show_overview(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Each region's state and last hour, and counts of what needs attention, with links to it."""
    require_request(request, frozenset({"refresh"}))
    refresh = request.params.get("refresh", "")
    if refresh not in ("", "no"):
        raise InvalidMessage("refresh is no, or left out")
    trouble, health = "", None
    try:
        health = await services.health.look()
    except LockstepError as error:
        trouble = str(error)
    record = await read_overview(services)
    now = time.time() if record.at else 0.0
    states = [
        judge_region(region, services.region, health, record, int(now // 60))
        for region in services.standstills.regions
    ]
    is_old = bool(record.at) and now > record.at + OLD_SECONDS
    is_late = SagaCount.OVERDUE in record.sagas
    return render(
        request,
        "overview.html",
        503 if trouble else 200,
        refresh=0 if refresh else REFRESH_SECONDS,
        seconds=REFRESH_SECONDS,
        is_refreshed=not refresh,
        trouble=trouble,
        states=states,
        missing=health.missing if health else {},
        record=record,
        is_old=is_old,
        meanings=MEANINGS,
        has_sagas=bool(kinds_of(services.handlers)),
        saga_meanings=SAGA_MEANINGS,
        is_late=is_late,
        is_well=not (trouble or is_old or record.attention or record.reports or is_late)
        and bool(record.at)
        and all(one.is_good for one in states),
        actions=explain_actions(states, record),
        chart=draw_hour(record, services.standstills.regions) if record.at else "",
    )

"""The activity of each region at the moment, as far as the journal shows it from here.

Whoever processes a message writes an entry, so the newest entries tell which region is at work; a
region that is lost stops writing, and what waits for it grows older. Both cost the same however
large the journal is. A region that has nothing to do is told from a lost one by its heartbeats.
The last hour is told by what the sweeps recorded, and is there when a region is not.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from typing import Any

import azure.functions as func

from functions.http.operate import read_overview
from functions.http.requests import require_request
from functions.http.routes import HttpRoutes
from functions.page.view import render, show_problems
from shared.charts import REGION_COLOURS, Chart, Panel, find_highest
from shared.domain.access import Right
from shared.domain.errors import InvalidMessage, LockstepError
from shared.domain.journal import RecentEntry
from shared.domain.overview import MINUTES, RegionRecord, silent_minutes
from shared.engine.build import Services
from shared.engine.operate.heartbeats import Age, describe_age

SHOWN_SECONDS = 60
BUCKET_SECONDS = 5
BUCKETS = SHOWN_SECONDS // BUCKET_SECONDS
# Entries that are looked at; with more in a minute, the part of it that these reach back is shown.
ENTRIES_MAX = 500
# Outputs that wait for a region are counted up to here.
WAITING_MAX = 200
# A region at work is heard once a minute at least.
LATE_SECONDS = 75.0
# How often a browser may ask again; by itself it does not.
REFRESH_SECONDS = (2, 5, 15)
# Charts are as wide as a phone can show by moving them aside, in pixels.
WIDTH, HEIGHT, LOW_HEIGHT = 720, 120, 60


@dataclass(frozen=True, slots=True)
class RegionActivity:
    """Messages that a region processed: by age, the newest last, and in a second.

    What the entries that were read do not reach back to is None.
    """

    counts: tuple[int | None, ...]
    rate: float
    newest_seconds: float | None


def measure_activity(recent: Sequence[RecentEntry], region: str) -> RegionActivity:
    """Return a region's activity by the newest entries; `recent` has the newest of all first."""
    reach = float(SHOWN_SECONDS)
    if len(recent) >= ENTRIES_MAX:
        reach = min(reach, max(1.0, recent[-1].age_seconds))
    counts = [0] * BUCKETS
    own = [one for one in recent if one.region == region and one.age_seconds < SHOWN_SECONDS]
    for one in own:
        counts[BUCKETS - 1 - int(one.age_seconds // BUCKET_SECONDS)] += one.messages
    newest = min((one.age_seconds for one in own), default=None)
    unread = [(BUCKETS - 1 - n) * BUCKET_SECONDS >= reach for n in range(BUCKETS)]
    known = [None if is_unread else count for count, is_unread in zip(counts, unread, strict=True)]
    return RegionActivity(tuple(known), sum(counts) / reach, newest)


routes = HttpRoutes(show_problems)


@routes.add("page_regions", "GET operate/regions", Right.LOOK)
async def show_regions(services: Services, request: func.HttpRequest) -> func.HttpResponse:
    """Rates, backlog and lag of every region; `every` asks for the page again and again."""
    require_request(request, frozenset({"every"}))
    every = read_refresh(request.params.get("every"))
    services.missing_places.begin_looking()
    regions = services.standstills.regions
    late = services.worker.policy.lag_seconds
    now = await services.journal.time()
    recent, ages, record, waiting = await asyncio.gather(
        services.journal.recent_entries(now, SHOWN_SECONDS, ENTRIES_MAX),
        hear_regions(services),
        read_overview(services),
        asyncio.gather(
            *(services.journal.waiting_seconds(now, one, late, WAITING_MAX) for one in regions)
        ),
    )
    activities = {region: measure_activity(recent, region) for region in regions}
    shown = [
        describe_tile(services, region, activities[region], waits)
        | (describe_heard(ages[region]) if region in ages else {})
        for region, waits in zip(regions, waiting, strict=True)
    ]
    return render(
        request,
        "regions.html",
        refresh=every,
        regions=shown,
        minute=draw_minute(activities, ages, now),
        hour=draw_hour(record, regions) if record.at else "",
        here=services.region,
        every=every,
        choices=REFRESH_SECONDS,
        late=late,
        waiting_max=WAITING_MAX,
        is_cut=len(recent) >= ENTRIES_MAX,
        entries_max=ENTRIES_MAX,
    )


def describe_tile(
    services: Services, region: str, activity: RegionActivity, waits: Sequence[float]
) -> dict[str, Any]:
    """Return the content of a tile."""
    missing = {
        place: reason
        for place, reason in services.missing_places.reasons.items()
        if place.endswith(f" of {region}")
    }
    return {
        "name": region,
        "rate": f"{activity.rate:.1f}",
        "newest": activity.newest_seconds,
        "missed": len(waits),
        "oldest": round(waits[0]) if waits else None,
        "missing": missing,
    }


def draw_minute(
    activities: Mapping[str, RegionActivity], ages: Mapping[str, Age | None], now: float
) -> str:
    """Draw the last minute of all regions as one chart; nothing heard of a region is an outage."""
    counted = "; ".join(
        f"{region}: {', '.join('not read' if n is None else str(n) for n in one.counts)}"
        for region, one in activities.items()
    )
    title = f"Messages of the last minute by {BUCKET_SECONDS} seconds, the newest last. {counted}"
    chart = Chart(
        title, now - SHOWN_SECONDS, now, f"time (UTC), {SHOWN_SECONDS} s", WIDTH, write_clock
    )
    rates = {
        region: [count and count / BUCKET_SECONDS for count in one.counts]
        for region, one in activities.items()
    }
    panel = chart.add_panel("messages a second, by region", HEIGHT, find_highest(rates))
    begin = now - SHOWN_SECONDS
    unit = "messages a second"
    panel.draw_stack(rates, REGION_COLOURS, unit=unit, begin=begin, width=BUCKET_SECONDS)
    for region, age in ages.items():
        if age is not None and (state := name_silence(age)):
            last_heard = begin if age.seconds is None else max(begin, now - age.seconds)
            panel.mark_outage(last_heard, now, f"{region}: {state}")
    return chart.write()


def draw_hour(record: RegionRecord, regions: Sequence[str]) -> str:
    """Draw the last hour by minutes: rates by region, above how long the oldest output waited."""
    last = int(record.at // 60)
    first = last - MINUTES + 1
    places = range(first, last + 1)
    looked = {region: record.minutes.get(region, {}) for region in regions}
    rates = {
        region: [minutes[at].rate if at in minutes else None for at in places]
        for region, minutes in looked.items()
    }
    waited = {
        region: [(at * 60.0, one.waited) for at, one in sorted(minutes.items()) if at >= first]
        for region, minutes in looked.items()
    }
    title = "Messages a second by region, above the wait of the oldest output for each region"
    chart = Chart(title, first * 60, (last + 1) * 60, "time (UTC), an hour", WIDTH, write_clock)
    above = chart.add_panel("messages a second, by region", HEIGHT, find_highest(rates))
    unit = "messages a second"
    above.draw_stack(rates, REGION_COLOURS, unit=unit, begin=first * 60, width=60)
    longest = max((seconds for points in waited.values() for _, seconds in points), default=0)
    below = chart.add_panel("seconds that the oldest output waited, by region", LOW_HEIGHT, longest)
    for (region, points), colour in zip(waited.items(), cycle(REGION_COLOURS), strict=False):
        below.draw_line(region, colour, points)
    for region, minutes in looked.items():
        silent = [at for at in silent_minutes(minutes) if at >= first]
        for panel in (above, below):
            mark_silence(panel, region, silent)
    return chart.write()


def mark_silence(panel: Panel, region: str, silent: Sequence[int]) -> None:
    """Shade each run of minutes in which nothing was heard of a region."""
    begins = [at for before, at in pairwise([None, *silent]) if at is not None and before != at - 1]
    ends = [at for at, after in pairwise([*silent, None]) if at is not None and after != at + 1]
    for first, last in zip(begins, ends, strict=True):
        panel.mark_outage(first * 60, (last + 1) * 60, f"{region}: silent")


def write_clock(seconds: float) -> str:
    """Return the time of day in UTC; seconds are left out where there are none."""
    return time.strftime("%H:%M:%S", time.gmtime(seconds)).removesuffix(":00")


async def hear_regions(services: Services) -> Mapping[str, Age | None]:
    """Return when each other region was heard; None where that is not known."""
    if services.heartbeats is None:
        return {}
    try:
        return (await services.heartbeats.ages()).regions
    except LockstepError:
        return dict.fromkeys(services.heartbeats.others)


def describe_heard(age: Age | None) -> dict[str, Any]:
    """Return what the tile of another region says of its heartbeats."""
    if age is None:
        return {"heard": "not known", "silent": "not known"}
    if state := name_silence(age):
        why = " (down, or cut off from the journal)" if age.is_silent else ""
        return {"heard": f"nothing {describe_age(age)}{why}", "silent": state}
    return {"heard": f"{age.seconds:.0f} s ago", "silent": ""}


def name_silence(age: Age) -> str:
    """Return in a word that too little is heard of another region; nothing where it is at work."""
    return "silent" if age.is_silent else "late" if age.heard > LATE_SECONDS else ""


def read_refresh(every: str | None) -> int:
    """After how many seconds a browser asks again, 0 for never; raises InvalidMessage."""
    if every in (None, ""):
        return 0
    if every not in [str(seconds) for seconds in REFRESH_SECONDS]:
        raise InvalidMessage(f"every is one of {', '.join(map(str, REFRESH_SECONDS))}")
    return int(str(every))

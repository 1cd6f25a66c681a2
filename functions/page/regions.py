"""The activity of each region at the moment, as far as the journal shows it from here.

Whoever processes a message writes an entry, so the newest entries tell which region is at work; a
region that is lost stops writing, and what waits for it grows older. Both cost the same however
large the journal is. A region that has nothing to do is told from a lost one by its heartbeats.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import azure.functions as func

from functions.http.requests import require_request
from functions.http.routes import HttpRoutes
from functions.page.view import render, show_problems
from shared.domain.access import Right
from shared.domain.errors import InvalidMessage, LockstepError
from shared.domain.journal import RecentEntry
from shared.engine.build import Services
from shared.engine.operate.heartbeats import Age, describe_age

SHOWN_SECONDS = 60
BUCKET_SECONDS = 5
BUCKETS = SHOWN_SECONDS // BUCKET_SECONDS
# Entries that are looked at; with more in a minute, the part of it that these reach back is shown.
ENTRIES_MAX = 500
# Outputs that wait for a region are counted up to here.
WAITING_MAX = 200
# How often a browser may ask again; by itself it does not.
REFRESH_SECONDS = (2, 5, 15)


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
    recent, ages, waiting = await asyncio.gather(
        services.journal.recent_entries(SHOWN_SECONDS, ENTRIES_MAX),
        hear_regions(services),
        asyncio.gather(
            *(services.journal.waiting_seconds(one, late, WAITING_MAX) for one in regions)
        ),
    )
    activities = {region: measure_activity(recent, region) for region in regions}
    most = max(count or 0 for one in activities.values() for count in one.counts)
    shown = [
        describe_tile(services, region, activities[region], waits, most)
        | (describe_heard(ages[region]) if region in ages else {})
        for region, waits in zip(regions, waiting, strict=True)
    ]
    return render(
        request,
        "regions.html",
        refresh=every,
        regions=shown,
        here=services.region,
        every=every,
        choices=REFRESH_SECONDS,
        late=late,
        waiting_max=WAITING_MAX,
        is_cut=len(recent) >= ENTRIES_MAX,
        entries_max=ENTRIES_MAX,
        bucket=BUCKET_SECONDS,
    )


def describe_tile(
    services: Services, region: str, activity: RegionActivity, waits: Sequence[float], most: int
) -> dict[str, Any]:
    """Return the content of a tile; bars are in percent of the highest one of all regions."""
    missing = {
        place: reason
        for place, reason in services.missing_places.reasons.items()
        if place.endswith(f" of {region}")
    }
    return {
        "name": region,
        "rate": f"{activity.rate:.1f}",
        "newest": activity.newest_seconds,
        "counts": ["not read" if count is None else count for count in activity.counts],
        "bars": [
            None if count is None else round(100 * count / most) if most else 0
            for count in activity.counts
        ],
        "missed": len(waits),
        "oldest": round(waits[0]) if waits else None,
        "missing": missing,
    }


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
        return {"heard": "not known", "silent": True}
    if age.is_silent:
        return {"heard": f"nothing {describe_age(age)}", "silent": True}
    return {"heard": f"{age.seconds:.0f} s ago", "silent": False}


def read_refresh(every: str | None) -> int:
    """After how many seconds a browser asks again, 0 for never; raises InvalidMessage."""
    if every in (None, ""):
        return 0
    if every not in [str(seconds) for seconds in REFRESH_SECONDS]:
        raise InvalidMessage(f"every is one of {', '.join(map(str, REFRESH_SECONDS))}")
    return int(str(every))

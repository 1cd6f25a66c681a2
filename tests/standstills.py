"""What needs attention in a test's world, as `GET /api/faults` lists it."""

from shared.domain.standstill import ListPlace, Standstill, StandstillKind
from shared.engine.build import Services

# As shown to a person: what, where, and the position it is about.
type Shown = tuple[StandstillKind, str, int | None]


async def listed(worker: Services, limit: int = 100) -> list[Standstill]:
    """Every page of the list."""
    found: list[Standstill] = []
    after: ListPlace | None = None
    while True:
        page = await worker.standstills.find(after=after, limit=limit)
        found += page.standstills
        if page.after is None:
            return found
        after = page.after


async def shown(worker: Services, limit: int = 100) -> list[Shown]:
    return [(one.kind, one.session, one.position) for one in await listed(worker, limit)]

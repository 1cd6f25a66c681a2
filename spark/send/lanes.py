"""The lanes of a run that were sent, recorded in the account by the tasks that sent them."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from spark.job.steps import AccountSteps
from spark.send.rows import SendCounts

# For so long a lane need not be sent again. An unfinished run is found by then.
KEPT_SECONDS = 30 * 24 * 3600


@dataclass(frozen=True, slots=True)
class SentLanes:
    """The lanes at a place among a manifest's steps; those that are `known` are not counted."""

    steps: AccountSteps
    place: str
    known: frozenset[int] = frozenset()

    @classmethod
    def parse(cls, option: str, settings: Mapping[str, str]) -> "SentLanes":
        """The lanes of an option; raises ValueError, and InvalidSettings."""
        name, root, place = json.loads(option)
        return cls(AccountSteps.of(settings, name, root), place)

    @property
    def option(self) -> str:
        return json.dumps([self.steps.name, self.steps.root, self.place])

    def record(self, lane: int, counts: SendCounts) -> None:
        """Record that all of a lane was sent; another attempt may have done so already."""
        text = json.dumps({"lane": lane, "counts": asdict(counts)})
        self.steps.create(f"{self.place}/lane={lane}", text, KEPT_SECONDS)

    def count(self) -> SendCounts:
        """The sum of what the tasks of all other lanes have sent."""
        found = [json.loads(text) for text in self.steps.read_texts([self.place])]
        counts = (SendCounts(**lane["counts"]) for lane in found if lane["lane"] not in self.known)
        return sum(counts, SendCounts())

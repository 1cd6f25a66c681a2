"""How far a run is: what the sender's ledger and the witness's record say so far."""

import time
from collections import Counter
from dataclasses import dataclass, field

from chaos.names import EFFECTS_QUEUE
from chaos.places import Places
from chaos.records import Follower


@dataclass
class Progress:
    """Counts that grow while the run goes on; copies that came twice count once."""

    ledger: Follower
    witnessed: Follower
    safe: int = 0
    effects: Counter[str] = field(default_factory=Counter)
    known: set[tuple[str, str]] = field(default_factory=set)
    news_at: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, places: Places) -> "Progress":
        """Nothing seen yet."""
        return cls(Follower(places.ledger), Follower(places.witnessed))

    def look(self) -> None:
        """Count what is new."""
        self.safe += sum(line["count"] for line in self.ledger.news() if line["what"] == "safe")
        for line in self.witnessed.news():
            copy = (line["region"], line["id"])
            if copy in self.known:
                continue
            self.known.add(copy)
            self.news_at = time.monotonic()
            if line["queue"] == EFFECTS_QUEUE:
                self.effects[line["region"]] += 1

    def seconds_since_news(self) -> float:
        """How long ago the last new effect or report came out."""
        return time.monotonic() - self.news_at

"""What a message may cost at most, and which of these aims do not hold."""

from dataclasses import dataclass

from bench.counts.waves import MessageCosts, VisitCosts

# Counts are exact, but the mean of a wave is a quotient.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Aim:
    what: str
    value: float
    most: float

    @property
    def holds(self) -> bool:
        return self.value <= self.most + ROUNDING

    def __str__(self) -> str:
        return f"{self.what}: {self.value:.2f}, at most {self.most:g}"


def list_aims(ours: VisitCosts, batch: MessageCosts) -> list[Aim]:
    situations = {"cold": ours.cold, "warm": ours.warm, "again": ours.again}
    everywhere = list(situations.values())
    return [
        *(
            Aim(f"strong writes, {name}", costs.primary.writes, 1.0)
            for name, costs in situations.items()
        ),
        Aim("request units over both regions, cold", ours.cold.both.units, 13.0),
        Aim("request units over both regions, warm", ours.warm.both.units, 9.5),
        Aim("request units in batches of 10", batch.both.units, 2.0),
        *(
            Aim(f"secondary writes and refused writes, {name}", count_attempts(costs), 0.0)
            for name, costs in situations.items()
        ),
        Aim("secondary reads, cold", ours.cold.secondary.reads, 1.0),
        Aim("secondary reads, warm", ours.warm.secondary.reads, 0.1),
        Aim("secondary reads, again", ours.again.secondary.reads, 1.0),
        Aim("messages given back", sum(costs.both.given_back for costs in everywhere), 0.0),
    ]


def count_attempts(costs: MessageCosts) -> float:
    return costs.secondary.writes + costs.secondary.refused

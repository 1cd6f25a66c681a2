"""`python -m proof.bench.counts`: what a message costs, ours against two well-known patterns.

Each system runs in two regions on the local cloud and gets the same messages of 1 KB, fault-free;
then the counters of the services are read. Exit status: 0 all aims hold, 1 one does not (it is
named), 2 the measurement could not be made.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cli.running import run_program
from proof.bench.counts.waves import (
    SESSIONS,
    VISIT_MESSAGES,
    MessageCosts,
    VisitCosts,
    count_backlog,
    count_visits,
)
from proof.bench.counts.whole_way import ASKED, PUBLISHED, count_whole_way
from proof.bench.load import BODY_BYTES
from proof.bench.systems import CLAIM_AND_UPDATE, ONE_CALL, OURS, READ_BATCH_MARK
from proof.testbed.command import exit_status, make_parser, show_progress

AIM_MISSED = 1
# Counts are exact, but the mean of a wave is a quotient.
ROUNDING = 1e-6
LABEL_WIDTH, CELL_WIDTH = 30, 7
WHOLE_WAY_AIMS = {
    PUBLISHED: {"no output": 20.0, "one output": 28.0, "one output, 100 kB of state": 60.0},
    ASKED: {"no output": 14.0, "one output": 24.0, "one output, 100 kB of state": 60.0},
}
SITUATIONS = ("cold", "warm", "again")

type CostRow = tuple[str, Callable[[MessageCosts], float]]

ROWS: Mapping[str, tuple[CostRow, ...]] = {
    "primary region": (
        ("strong writes", lambda costs: costs.primary.writes),
        ("documents written", lambda costs: costs.primary.documents),
        ("writes refused", lambda costs: costs.primary.refused),
        ("reads", lambda costs: costs.primary.reads),
        ("request units", lambda costs: costs.primary.units),
    ),
    "secondary region": (
        ("strong writes", lambda costs: costs.secondary.writes),
        ("writes refused", lambda costs: costs.secondary.refused),
        ("reads", lambda costs: costs.secondary.reads),
        ("request units", lambda costs: costs.secondary.units),
    ),
    "both regions": (
        ("request units", lambda costs: costs.both.units),
        ("Service Bus operations", lambda costs: costs.both.bus_operations),
        ("abandoned, dead, lock lost", lambda costs: costs.both.given_back),
    ),
}


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


def list_aims(
    ours: VisitCosts, backlog: MessageCosts, whole: Mapping[str, Mapping[str, float]]
) -> list[Aim]:
    named = {"cold": ours.cold, "warm": ours.warm, "again": ours.again}
    attempts = "secondary writes and refused writes"
    return [
        *(
            Aim(f"strong writes, {name}", costs.primary.writes, 1.0)
            for name, costs in named.items()
        ),
        Aim("request units over both regions, cold", ours.cold.both.units, 13.0),
        Aim("request units over both regions, warm", ours.warm.both.units, 9.5),
        Aim("strong writes, backlog", backlog.primary.writes, 0.1),
        Aim("request units over both regions, backlog", backlog.both.units, 1.5),
        *(Aim(f"{attempts}, {name}", count_attempts(costs), 0.0) for name, costs in named.items()),
        Aim("secondary reads, cold", ours.cold.secondary.reads, 1.0),
        Aim("secondary reads, warm", ours.warm.secondary.reads, 0.1),
        Aim("secondary reads, again", ours.again.secondary.reads, 1.0),
        *(
            Aim(f"request units of the whole way, {way}, {what}", whole[way][what], most)
            for way, aims in WHOLE_WAY_AIMS.items()
            for what, most in aims.items()
        ),
        Aim("messages given back", sum(costs.both.given_back for costs in named.values()), 0.0),
    ]


def count_attempts(costs: MessageCosts) -> float:
    return costs.secondary.writes + costs.secondary.refused


def format_table(counted: Mapping[str, VisitCosts]) -> Iterator[str]:
    """Yield every figure per message: systems side by side, each cold, warm and again."""
    width = CELL_WIDTH * len(SITUATIONS)
    yield " " * LABEL_WIDTH + "".join(f"{name:>{width}}" for name in counted)
    heads = "".join(f"{situation:>{CELL_WIDTH}}" for situation in SITUATIONS)
    yield "per message".ljust(LABEL_WIDTH) + heads * len(counted)
    for section, rows in ROWS.items():
        yield section
        for label, figure in rows:
            cells = (
                f"{figure(costs):>{CELL_WIDTH}.2f}"
                for visits in counted.values()
                for costs in (visits.cold, visits.warm, visits.again)
            )
            yield f"  {label}".ljust(LABEL_WIDTH) + "".join(cells)
    feeds = "".join(f"{visits.feed_units:>{width}.2f}" for visits in counted.values())
    yield "  change feed, request units".ljust(LABEL_WIDTH) + feeds


def format_backlog(backlog: MessageCosts) -> str:
    return (
        f"of a backlog, per message: {backlog.primary.writes:.2f} strong writes, "
        f"{backlog.both.reads:.2f} reads, {backlog.both.units:.2f} request units over both "
        f"regions, {count_attempts(backlog):.2f} writes by the secondary"
    )


def run() -> int:
    counted = {}
    # With one call of a session nothing is shared: each message costs what it costs alone.
    for system in (ONE_CALL, CLAIM_AND_UPDATE, READ_BATCH_MARK):
        show_progress(f"counting {system.name}")
        counted[system.name] = count_visits(system)
    print(f"{SESSIONS} sessions, {BODY_BYTES} bytes a body, {VISIT_MESSAGES} messages a visit\n")
    print("\n".join(line.rstrip() for line in format_table(counted)), flush=True)
    show_progress("counting a backlog")
    backlog = count_backlog(OURS)
    print(format_backlog(backlog))
    show_progress("counting the whole way")
    whole = count_whole_way()
    print("from HTTP to acknowledged, request units over both regions:")
    for way, counted_units in whole.items():
        figures = (f"{units:.1f} with {what}" for what, units in counted_units.items())
        print(f"  {way}: {', '.join(figures)}")
    missed = [aim for aim in list_aims(counted[ONE_CALL.name], backlog, whole) if not aim.holds]
    for aim in missed:
        print(f"aim missed: {aim}")
    if not missed:
        print("all aims hold")
    return AIM_MISSED if missed else 0


def main(words: Sequence[str]) -> int:
    make_parser("proof.bench.counts", __doc__).parse_args(words)
    return exit_status("python -m proof.bench.counts", run)


if __name__ == "__main__":
    run_program(main)

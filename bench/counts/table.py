"""Ours against the baselines, as text."""

from collections.abc import Callable, Iterator, Mapping

from bench.counts.waves import MessageCosts, VisitCosts

LABEL_WIDTH, CELL_WIDTH = 30, 7
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


def format_table(counted: Mapping[str, VisitCosts]) -> str:
    """Every figure per message: systems side by side, each cold, warm and again."""
    return "\n".join(line.rstrip() for line in format_lines(counted))


def format_lines(counted: Mapping[str, VisitCosts]) -> Iterator[str]:
    width = CELL_WIDTH * len(SITUATIONS)
    yield " " * LABEL_WIDTH + "".join(f"{name:>{width}}" for name in counted)
    heads = "".join(f"{situation:>{CELL_WIDTH}}" for situation in SITUATIONS)
    yield "per message".ljust(LABEL_WIDTH) + heads * len(counted)
    for section, rows in ROWS.items():
        yield section
        for label, figure in rows:
            yield format_row(f"  {label}", figure, counted)
    feeds = "".join(f"{visits.feed_units:>{width}.2f}" for visits in counted.values())
    yield "  change feed, request units".ljust(LABEL_WIDTH) + feeds


def format_row(
    label: str, figure: Callable[[MessageCosts], float], counted: Mapping[str, VisitCosts]
) -> str:
    cells = (
        f"{figure(costs):>{CELL_WIDTH}.2f}"
        for visits in counted.values()
        for costs in (visits.cold, visits.warm, visits.again)
    )
    return label.ljust(LABEL_WIDTH) + "".join(cells)


def format_batch(batch: MessageCosts) -> str:
    return (
        f"batches of 10, per message: {batch.primary.writes:.2f} strong writes, "
        f"{batch.both.reads:.2f} reads, {batch.both.units:.2f} request units over both regions, "
        f"{batch.secondary.writes + batch.secondary.refused:.2f} writes by the secondary"
    )

"""The report of a run of orders: what was checked, and the sagas drawn over time."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

from proof.demo.result import ExitStatus
from proof.demo.sagas.checker import StoredSaga
from proof.testbed.pages import ReportPage, ReportRow
from shared.charts import Chart, find_highest

# From below: what ended well, what was undone, what needs a person, what is still running.
STATES = ("completed", "compensated", "failed", "running")
STATE_COLOURS = ("good", "region1", "bad", "region0")
HINT = (
    "This machine may be too busy: run it again, with a lower --rate, or when nothing else runs."
    " The logs of both regions are in the folder of this report, under logs."
)

TERMS = {
    "saga": "an order, taken through several sessions: every step of it is done, or none stays",
    "session": "what has an order of its own: an order, the stock of a product, an account",
    "compensated": "what was done is undone: a step was refused, the order was rejected or"
    " cancelled, or nobody decided in time",
    "failed": "the saga could be neither completed nor undone, and a person has to look at it",
    "claim": "by it one region walks through a saga; when it has run out, the other region may",
}

# After so long without a decision a region leaves a saga to the other.
LEASE_SECONDS = 5


@dataclass(frozen=True, slots=True)
class SagaReport:
    """The results of a run; `outage` is when `region` was gone, in seconds since the epoch.

    `stopped` says why the run was broken off; it is empty for a run that came to its end.
    """

    results: Sequence[ReportRow]
    sagas: Sequence[StoredSaga]
    outage: tuple[float, float] | None
    region: str
    started_at: float = 0.0
    stopped: str = ""

    @property
    def unfinished(self) -> tuple[str, ...]:
        """The reason why the run was broken off, if it was, and the promises not checked whole."""
        if not self.stopped:
            return ()
        left = (f"{one.label}: {one.value}" for one in self.results if one.is_unfinished)
        return (self.stopped, *left)

    def exit_status(self) -> ExitStatus:
        if any(one.is_broken for one in self.results):
            return ExitStatus.BROKEN
        return ExitStatus.NOT_FINISHED if self.stopped else ExitStatus.HELD

    @property
    def page(self) -> ReportPage:
        return ReportPage(
            title="Lockstep: sagas through the outage of a region",
            story="Orders were placed as sagas over several sessions in two regions on this"
            " machine, and the region that leads was taken away and brought back. Then each saga's"
            " end, and what it did to stock and accounts, was checked. A claim outlived its owner"
            f" by {LEASE_SECONDS} s (the product's default: 30 s).",
            started_at=self.started_at,
            problems=[f"{one.label}: {one.value}" for one in self.results if one.is_broken],
            unfinished=self.unfinished,
            hint=HINT if self.stopped else "",
            tiles=self.tiles,
            terms=TERMS,
            chart=draw_sagas(self.sagas, self.outage, self.region),
            sections={"Checks": self.results},
        )

    @property
    def tiles(self) -> dict[str, str]:
        """The number of sagas, and how they ended."""
        ends = Counter(find_state(saga, inf) for saga in self.sagas)
        counts = {"orders": len(self.sagas)} | {state: ends[state] for state in STATES[:3]}
        tiles = {name: str(count) for name, count in counts.items()}
        if self.outage is not None:
            tiles["outage"] = f"{self.outage[1] - self.outage[0]:.1f} s"
        return tiles


def draw_sagas(sagas: Sequence[StoredSaga], outage: tuple[float, float] | None, region: str) -> str:
    """Draw how many sagas were in each state in each second; of no sagas there is no chart."""
    if not sagas:
        return ""
    begin = int(min(saga.started_at for saga in sagas))
    end = ceil(max(saga.ended_at or saga.started_at for saga in sagas) + 1)
    found = [[find_state(saga, second) for saga in sagas] for second in range(begin, end)]
    counts = {state: [states.count(state) for states in found] for state in STATES}
    title = "sagas by state"
    chart = Chart(title, 0, end - begin, "time since the first saga (s)")
    panel = chart.add_panel(title, 300, find_highest(counts))
    panel.draw_stack(counts, STATE_COLOURS, unit="sagas")
    if outage is not None:
        left, right = (min(max(at, begin), end) - begin for at in outage)
        panel.mark_outage(left, right, f"{region} is down")
    return chart.write()


def find_state(saga: StoredSaga, at: float) -> str | None:
    """Return the state a saga is drawn in at a time; None before it started."""
    if at < saga.started_at:
        return None
    if saga.ended_at is None or at < saga.ended_at:
        return "running"
    return saga.state if saga.state in STATES else "failed"

"""Everything a finished run has to say, for the terminal and the report alike."""

from collections.abc import Iterator
from dataclasses import dataclass

from demo.costs import Costs
from demo.failover import Failover, Outage, Phase
from demo.history import Entry
from demo.options import Options
from demo.row import Row
from demo.samples import Timeline
from demo.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Rejects:
    """Rows that could not become messages, as the feed counted them and as recounted.

    `reported` is None when the feed did not come to its end.
    """

    reported: int | None
    recounted: int

    @property
    def agree(self) -> bool:
        """Whether both counts are the same."""
        return self.reported == self.recounted

    def __str__(self) -> str:
        if self.agree:
            return str(self.recounted)
        reported = "none" if self.reported is None else str(self.reported)
        return f"{reported} by the feed, {self.recounted} by recount"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run, judged. `added` are the entries this run added to the journal."""

    options: Options
    verdict: Verdict
    rejects: Rejects
    costs: Costs
    added: tuple[Entry, ...]
    is_first: bool
    timeline: Timeline
    outage: Outage | None
    failover: Failover | None

    @property
    def effects_added(self) -> int:
        """Return how many effects this run added."""
        return sum(len(entry.covers) for entry in self.added)

    def problems(self) -> tuple[str, ...]:
        """Name everything that keeps the run from being a success."""
        return (*self._broken_promises(), *self._shortfalls())

    def rows(self) -> Iterator[Row]:
        """Walk over the lines of the verdict."""
        yield Row("sent", f"{self.verdict.sent}")
        yield Row("effects", f"{self.verdict.effects}")
        yield Row("effects added", f"{self.effects_added}")
        for finding in self.verdict.findings:
            value = ", ".join((str(finding.count), *finding.examples))
            yield Row(finding.breach.value, value, is_good=not finding.count)
        yield Row("rejected rows", str(self.rejects), is_good=self.rejects.agree)
        yield from self._failover_rows()
        yield from self._cost_rows()

    def _broken_promises(self) -> Iterator[str]:
        for finding in self.verdict.broken:
            yield f"{finding.breach}: {finding.count} ({', '.join(finding.examples)})"
        if not self.rejects.agree:
            yield f"rejected rows: {self.rejects}"
        if not self.options.kills and self.costs.abandons:
            yield f"abandons in a run without faults: {self.costs.abandons}"

    def _shortfalls(self) -> Iterator[str]:
        if not (self.options.kills and self.is_first):
            return
        if self.failover is None:
            yield "no failover: everything was handled before a region could be killed"
        else:
            yield from self.failover.shortfalls()

    def _failover_rows(self) -> Iterator[Row]:
        if self.failover is None or not self.added:
            return
        for region in (self.failover.primary, self.failover.secondary):
            made = {phase: self.failover.effects[region, phase] for phase in Phase}
            parts = ", ".join(f"{count} {phase} the outage" for phase, count in made.items())
            yield Row(f"effects by {region}", parts)
        yield Row(f"share of {self.failover.secondary}", f"{self.failover.secondary_share:.0%}")
        if self.failover.take_over_seconds is not None:
            yield Row("take-over", f"{self.failover.take_over_seconds:.1f} s after the kill")

    def _cost_rows(self) -> Iterator[Row]:
        costs = self.costs
        kinds = ", ".join(f"{count} {name}" for name, count in sorted(costs.operations.items()))
        total = sum(costs.operations.values())
        yield Row("Cosmos operations", f"{costs.per_message(total):.2f} per message ({kinds})")
        yield Row("request units", f"{costs.per_message(costs.request_units):.2f} per message")
        yield Row("strong writes", f"{costs.per_message(costs.commits):.2f} per message")
        yield Row("abandons", f"{costs.abandons}")

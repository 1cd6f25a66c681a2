"""The result of a finished run, for the terminal and the report alike: checks, failover, costs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from itertools import product

from local.testing.control import Counters, flatten_counters, subtract_tallies
from proof.demo.checker import Breach, CheckResult, StoredEntry
from proof.demo.loss import LostPart
from proof.demo.options import DemoOptions
from proof.demo.posts import PostResult
from proof.testbed.pages import ReportRow
from proof.testbed.sampling import SampleTimeline

SHARE_OF_OTHERS_MIN = 0.2
ALWAYS_SHOWN = (Breach.LOST, Breach.DUPLICATED, Breach.OUT_OF_ORDER)


class ExitStatus(IntEnum):
    """The exit status of a run that was checked; 2 is that of one that could not be done.

    NOT_FINISHED: nothing moved any more before everything was done, and what was done broke no
    promise. NOT_SHOWN: every promise held, and the run did not show all it was to show.
    """

    HELD = 0
    BROKEN = 1
    NOT_SHOWN = 3
    NOT_FINISHED = 4


class OutagePhase(StrEnum):
    BEFORE = "before"
    DURING = "during"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Outage:
    """The outage of the primary, from its loss to its return, in seconds since the epoch.

    `moved_at` is when the journal's writes moved, None where its write region was not lost.
    """

    killed_at: float
    recovered_at: float
    loss: LostPart
    moved_at: float | None = None

    def phase(self, at: int) -> OutagePhase:
        """Return the phase of an effect; the store's time is cut off to whole seconds."""
        if at <= self.killed_at:
            return OutagePhase.BEFORE
        return OutagePhase.DURING if at <= self.recovered_at else OutagePhase.AFTER


@dataclass(frozen=True, slots=True)
class Failover:
    """Effects by region and phase, and the gaps in them, None where no effect ended the gap.

    Take-over runs from the loss to the first effect by any of the others, `move_seconds` from the
    move of the journal's writes to the first effect anywhere. Both are exact to a second, because
    that is how the journal dates its entries.
    """

    outage: Outage
    primary: str
    others: tuple[str, ...]
    effects: Mapping[tuple[str, OutagePhase], int]
    take_over_seconds: float | None
    move_seconds: float | None

    def gaps(self) -> Iterator[tuple[str, float, str]]:
        """Yield the gap in effects of each kind: its name, its seconds from the loss, in words."""
        if self.outage.loss.is_taken_over and self.take_over_seconds is not None:
            seconds = self.take_over_seconds
            yield "take-over", seconds, f"{seconds:.1f} s after the loss"
        if self.outage.moved_at is not None and self.move_seconds is not None:
            waited = self.outage.moved_at - self.outage.killed_at
            after = f"the first effect {self.move_seconds:.1f} s after it"
            text = f"{waited:.1f} s after the loss; {after}"
            yield "the journal's move", waited + self.move_seconds, text

    @property
    def share_of_others(self) -> float:
        total = sum(self.effects.values())
        made = sum(self.effects[key] for key in product(self.others, OutagePhase))
        return made / total if total else 0.0

    def shortfalls(self) -> tuple[str, ...]:
        """Name what keeps this run from showing a failover in the middle of the traffic."""
        found = []
        if not self.effects[self.primary, OutagePhase.BEFORE]:
            found.append(f"{self.primary} made no effect before it was hit")
        if self.outage.moved_at is not None and self.move_seconds is None:
            found.append("no region made an effect after the journal's writes had moved")
        if self.outage.loss.is_taken_over and self.share_of_others < SHARE_OF_OTHERS_MIN:
            share, least = f"{self.share_of_others:.0%}", f"{SHARE_OF_OTHERS_MIN:.0%}"
            found.append(
                f"{' and '.join(self.others)} made {share} of the effects, less than {least}"
            )
        if not self.effects[self.primary, OutagePhase.AFTER]:
            found.append(f"{self.primary} made no effect after it came back")
        return tuple(found)


def measure_failover(
    entries: Iterable[StoredEntry], outage: Outage, primary: str, others: Sequence[str]
) -> Failover:
    made: Counter[tuple[str, OutagePhase]] = Counter()
    took_over, moved = [], []
    for entry in entries:
        phase = outage.phase(entry.at)
        made[entry.region, phase] += len(entry.covers)
        if entry.region in others and phase is OutagePhase.DURING:
            took_over.append(entry.at - outage.killed_at)
        if outage.moved_at is not None and outage.moved_at < entry.at <= outage.recovered_at:
            moved.append(entry.at - outage.moved_at)
    return Failover(
        outage=outage,
        primary=primary,
        others=tuple(others),
        effects={key: made[key] for key in product((primary, *others), OutagePhase)},
        take_over_seconds=min(took_over, default=None),
        move_seconds=min(moved, default=None),
    )


@dataclass(frozen=True, slots=True)
class RunCosts:
    """Counts of one run. `operations` are the Cosmos requests by kind, refused ones included.

    `commits` are transactional batches that succeeded, the strong writes.
    `abandons` are deliveries that were given back to their queue.
    """

    messages: int
    operations: Mapping[str, int]
    request_units: float
    commits: int
    abandons: int

    def per_message(self, amount: float) -> float:
        """Return an amount divided by the messages of the run; 0 for a run without any."""
        return amount / self.messages if self.messages else 0.0


def compute_costs(before: Counters, after: Counters, messages: int) -> RunCosts:
    grown = subtract_tallies(flatten_counters(before), flatten_counters(after))
    operations: Counter[str] = Counter()
    commits = abandons = 0
    request_units = 0.0
    for (component, operation, status), (count, units) in grown.items():
        if component.startswith("cosmos"):
            request_units += units
        if component.startswith("cosmos."):
            operations[operation] += count
            if (operation, status) == ("batch", "200"):
                commits += count
        if operation == "abandon":
            abandons += count
    return RunCosts(messages, dict(operations), request_units, commits, abandons)


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """Rows that could not become messages, as the feed counted them and as counted again.

    `reported` is None when the feed did not come to its end.
    """

    reported: int | None
    recounted: int

    @property
    def agree(self) -> bool:
        return self.reported == self.recounted

    def __str__(self) -> str:
        if self.agree:
            return str(self.recounted)
        reported = "none" if self.reported is None else str(self.reported)
        return f"{reported} by the feed, {self.recounted} by recount"


@dataclass(frozen=True, slots=True)
class DemoResult:
    """A run and what was found of it. `added` are the entries this run added to the journal.

    `stopped` says why the run was broken off; it is empty for a run that came to its end.
    """

    options: DemoOptions
    check: CheckResult
    posts: PostResult
    rejects: RejectedRows
    costs: RunCosts
    added: tuple[StoredEntry, ...]
    is_first: bool
    timeline: SampleTimeline
    outage: Outage | None
    failover: Failover | None
    stopped: str = ""

    @property
    def effects_added(self) -> int:
        return sum(len(entry.covers) for entry in self.added)

    def problems(self) -> tuple[str, ...]:
        """Name each promise that was broken."""
        found = [*map(str, self.check.broken)]
        found += [f"posted by HTTP: {one}" for one in self.posts.check.broken]
        if not self.rejects.agree and not self.lacks_rejects:
            found.append(f"rejected rows: {self.rejects}")
        return tuple(found)

    @property
    def lacks_rejects(self) -> bool:
        """Return whether the run was broken off before the feed could say what it rejected."""
        return bool(self.stopped) and self.rejects.reported is None

    def unfinished(self) -> tuple[str, ...]:
        """Return why the run was broken off, if it was, and what it left undone.

        No promise is broken by that, and nothing of it could be checked.
        """
        if not self.stopped:
            return ()
        found = [*map(str, self.check.unfinished), *map(str, self.posts.check.unfinished)]
        if self.lacks_rejects:
            found.append("rejected rows: the feed has not come to its end")
        return (self.stopped, *found)

    @property
    def hint(self) -> str:
        """The advice to a person about a run that did not finish, or did not show its failover."""
        if self.stopped:
            return (
                "This machine may be too busy: run it again without --fresh, and it goes on with"
                " what is left. If it stops at the same place again, --keep leaves everything up,"
                " so that the operations page can say what needs attention;"
                f" the logs are in {self.options.logs}."
            )
        if self.shortfalls() and self.options.kills:
            return "Run it again with --fresh and a lower --rate to see the failover."
        return ""

    def shortfalls(self) -> tuple[str, ...]:
        """Name what a run that was to show a failover did not show, such as on a slow machine.

        No promise is broken by that. A second run over the same data adds no effects to show, and
        what a run that was broken off would have shown is not known.
        """
        if self.stopped:
            return ()
        if not self.options.kills:
            # A delivery that is given back comes again, so it only costs; a slow journal does it.
            text = f"deliveries were given back in a run without faults: {self.costs.abandons}"
            return (text,) if self.costs.abandons else ()
        if not self.is_first:
            return ()
        if self.failover is None:
            return ("nothing was lost and brought back while messages were handled",)
        return self.failover.shortfalls()

    def exit_status(self) -> ExitStatus:
        if self.problems():
            return ExitStatus.BROKEN
        if self.stopped:
            return ExitStatus.NOT_FINISHED
        return ExitStatus.NOT_SHOWN if self.shortfalls() else ExitStatus.HELD

    def rows(self) -> Iterator[ReportRow]:
        yield ReportRow("sent", f"{self.check.sent}")
        yield ReportRow("effects", f"{self.check.effects}")
        yield ReportRow("effects added", f"{self.effects_added}")
        for result in self.check.results:
            value = ", ".join((str(result.count), *result.examples))
            is_left = bool(result.count) and self.check.is_left(result)
            yield ReportRow(result.breach.value, value, not result.count, is_unfinished=is_left)
        agree, is_open = self.rejects.agree, self.lacks_rejects
        yield ReportRow("rejected rows", str(self.rejects), agree, is_unfinished=is_open)
        if self.posts.check.sent:
            yield ReportRow("posted by HTTP", str(self.posts))
            counts = ", ".join(
                f"{one.count} {one.breach}"
                for one in self.posts.check.results
                if one.count or one.breach in ALWAYS_SHOWN
            )
            yield ReportRow("of what was posted", counts, not self.posts.check.broken)
        if self.failover is not None and self.added:
            for region in (self.failover.primary, *self.failover.others):
                made = {phase: self.failover.effects[region, phase] for phase in OutagePhase}
                parts = ", ".join(f"{count} {phase} the outage" for phase, count in made.items())
                yield ReportRow(f"effects by {region}", parts)
            share = f"{self.failover.share_of_others:.0%}"
            yield ReportRow(f"share of {' and '.join(self.failover.others)}", share)
            yield from (ReportRow(name, text) for name, _, text in self.failover.gaps())
        costs = self.costs
        kinds = ", ".join(f"{count} {name}" for name, count in sorted(costs.operations.items()))
        total = costs.per_message(sum(costs.operations.values()))
        yield ReportRow("Cosmos operations", f"{total:.2f} per message ({kinds})")
        units = costs.per_message(costs.request_units)
        yield ReportRow("request units", f"{units:.2f} per message")
        effects = costs.per_message(len(self.added) + self.posts.commits)
        around = costs.per_message(costs.commits) - effects
        writes = f"{effects:.2f} that make effects, {around:.2f} around them"
        yield ReportRow("strong writes", f"{effects + around:.2f} per message: {writes}")
        yield ReportRow("abandons", f"{costs.abandons}")

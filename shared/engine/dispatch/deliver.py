"""Bring messages to several regions, and pause before what failed is tried again.

Every region gets its own copy of every message. The copies have the same bytes, so a region whose
answer was lost can be sent the same again, and its receivers drop what they have seen. Messages go
out in batches, one after another, and what was taken is counted: only the batch without an answer
is sent again.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf

from shared.domain.decision import sending_time
from shared.domain.errors import (
    InvalidMessage,
    LockstepError,
    Misconfigured,
    OutcomeUnknown,
    Unavailable,
)
from shared.domain.message import Message, home_region, weighted_region
from shared.domain.outbox import AppQueues, Delivered, Outbox, Part, address
from shared.domain.reports import make_tombstone, shorten
from shared.domain.wire import BATCH_BYTES_MAX, wire_bytes
from shared.ports import Bus, Clock

log = logging.getLogger("lockstep.deliver")

# A queue or region that failed is not tried again for this long: twice as long after each try that
# failed, so that a long outage costs nothing and a recovered region is soon used again.
PAUSE_SECONDS = 2.0
PAUSE_SECONDS_MAX = 60.0
# How long the others are waited for once a region has everything: what they miss is pending. One
# that took a batch in the same try is there, and gets longer for the next one.
PATIENCE_SECONDS = 1.0
PATIENCE_FACTOR = 5
# Two times of the loop's clock that are the same, but for rounding.
INSTANT_SECONDS = 1e-6


@dataclass
class Breaker:
    """A breaker says if a queue or region may be tried: for a while by nobody, then by one.

    `reason` is the failure, or None where the last try succeeded.
    """

    reason: LockstepError | None = None
    pause_seconds: float = 0.0
    paused_at: float = float("-inf")
    is_probed: bool = False

    def may_be_tried(self, now: float) -> bool:
        is_over = now >= self.paused_at + self.pause_seconds
        return self.reason is None or (is_over and not self.is_probed)

    def record(self, reason: LockstepError | None, now: float) -> None:
        self.reason, self.paused_at, self.is_probed = reason, now, False
        longer = min(max(2 * self.pause_seconds, PAUSE_SECONDS), PAUSE_SECONDS_MAX)
        self.pause_seconds = 0.0 if reason is None else longer


# A message that a queue misses, and its place among all that the outbox has for the queue.
type Missing = tuple[int, Message]


@dataclass(frozen=True, slots=True)
class Recording:
    """The place where a delivery says how far it is: each time when so many seconds passed.

    With `by_batch` also after each batch but a queue's last. Writing raises nothing.
    """

    seconds: float
    write: Callable[[Delivered], Awaitable[None]]
    by_batch: bool


@dataclass(eq=False, slots=True)
class Send:
    """The send to one region: what was taken so far, and when by the loop's clock.

    After `until` no batch is begun but the first, and none at all once it was left.
    """

    answered_at: float
    until: float
    taken: list[str] = field(default_factory=list)
    sent: dict[str, Part] = field(default_factory=dict)

    def may_begin(self) -> bool:
        is_first = not self.sent and not self.taken and self.until > -inf
        return is_first or asyncio.get_running_loop().time() < self.until

    def silent_at(self, first_done_at: float, patience_seconds: float) -> float:
        """Return when it is waited for no longer, unless it takes another batch before."""
        patience = patience_seconds * (PATIENCE_FACTOR if self.sent else 1)
        after_others = max(first_done_at, self.answered_at) + patience
        return min(after_others, max(self.until, self.answered_at + patience))


@dataclass(eq=False, slots=True)
class Progress:
    """The state of the sends of one delivery, and where it is written."""

    outbox: Outbox
    sends: Mapping[str, Send]
    record: Recording | None
    written_at: float
    written: Delivered = field(default_factory=Delivered)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def so_far(self) -> Delivered:
        return Delivered(
            taken={region: tuple(send.taken) for region, send in self.sends.items() if send.taken},
            sent={region: dict(send.sent) for region, send in self.sends.items() if send.sent},
            tried=self.outbox.regions,
            goes_on=True,
        )

    @property
    def write_at(self) -> float:
        return self.written_at + self.record.seconds if self.record else inf

    async def add(self, region: str, queue: str, part: Part) -> None:
        """Note what a queue took, and write it down if that is wanted and more follows."""
        send, loop = self.sends[region], asyncio.get_running_loop()
        send.sent[queue] = part
        if self.record is not None and self.record.by_batch and part.count < part.total:
            # The store is waited for now, not the region.
            send.answered_at = inf
            await self.write()
        send.answered_at = loop.time()

    async def write(self, *, anew: bool = False) -> None:
        """Write how far it is, unless somebody did so meanwhile and nothing is wanted `anew`."""
        async with self.writing:
            so_far = self.so_far
            if self.record is not None and (anew or so_far != self.written):
                self.written, self.written_at = so_far, asyncio.get_running_loop().time()
                await self.record.write(so_far)


@dataclass
class Delivery:
    """Sends an outbox to regions. The preferred region's copy is visible first.

    The first region is preferred for every session; with `affinity` each session has a preferred
    region of its own, by `weights` where there are any. The other regions see their copies
    `secondary_delay_seconds` later, unless the type has another delay in `delays`, or the message.
    `breakers` are by region, with an empty name, for silence, and by region and queue for refusals.
    """

    bus: Bus
    clock: Clock
    regions: tuple[str, ...]
    secondary_delay_seconds: float
    queues: AppQueues
    affinity: bool = False
    patience_seconds: float = PATIENCE_SECONDS
    weights: Mapping[str, float] = field(default_factory=dict)
    delays: Mapping[str, float] = field(default_factory=dict)
    breakers: defaultdict[tuple[str, str], Breaker] = field(
        default_factory=lambda: defaultdict(Breaker)
    )
    late: set[asyncio.Task[Delivered]] = field(default_factory=set)

    async def deliver(self, outbox: Outbox) -> tuple[str, ...]:
        """Send to every region the outbox names; the answer is the regions that surely have it.

        A region whose outcome is unknown is not among them: sending again is harmless, losing the
        copy is not. Raises InvalidMessage where a queue will never take one of the messages.
        """
        return (await self.send_to_regions(outbox, None, None, None)).whole

    async def deliver_possible(
        self, outbox: Outbox, within: float | None = None, record: Recording | None = None
    ) -> Delivered:
        """Deliver, with a tombstone in place of each message that its queue will never take.

        After `within` seconds no batch is begun; without it the delivery takes as long as batches
        are taken. Regions that take none any more are left, once another one has everything.
        """
        return await self.send_to_regions(outbox, dict(outbox.refused), within, record)

    async def send_to_regions(
        self,
        outbox: Outbox,
        refused: dict[str, str] | None,
        within: float | None,
        record: Recording | None,
    ) -> Delivered:
        """Return the result of all regions side by side; an error of one waits for the others."""
        began, loop = self.clock.now(), asyncio.get_running_loop()
        until = inf if within is None else loop.time() + within
        sends = {region: Send(loop.time(), until) for region in outbox.regions}
        progress = Progress(outbox, sends, record, loop.time())
        tasks = {
            region: asyncio.create_task(self.send_to_region(region, refused, progress))
            for region in sends
        }
        waiting, left, first_done_at = set(sends), set[str](), inf
        patience = self.patience_seconds
        try:
            while waiting:
                ends = (sends[region].silent_at(first_done_at, patience) for region in waiting)
                wake_at = min(progress.write_at, *ends)
                await asyncio.wait(
                    [tasks[region] for region in waiting],
                    timeout=None if wake_at == inf else max(0.0, wake_at - loop.time()),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                now = loop.time()
                done = {region for region in waiting if tasks[region].done()}
                waiting -= done
                if any(has_succeeded(tasks[region]) for region in done):
                    first_done_at = min(first_done_at, now)
                for region, send in sends.items():
                    silent_at = send.silent_at(first_done_at, patience)
                    if region in waiting and silent_at <= now + INSTANT_SECONDS:
                        waiting.discard(region)
                        left.add(region)
                        self.leave(region, tasks[region], send, began)
                if waiting and progress.write_at <= now + INSTANT_SECONDS:
                    await progress.write(anew=True)
        except BaseException:
            for region in waiting:
                tasks[region].cancel()
            raise
        answers = [task.result() for region, task in tasks.items() if region not in left]
        return replace(
            progress.so_far,
            regions=tuple(region for answer in answers for region in answer.regions),
            refused=dict(refused or {}),
            blocked={r: queues for answer in answers for r, queues in answer.blocked.items()},
            goes_on=False,
        )

    def leave(self, region: str, task: asyncio.Task[Delivered], send: Send, began: float) -> None:
        """Wait no longer for a region; whether it answers after all only its breaker is told."""
        # Not cancelled: its sender would have to connect anew, and a region that is merely slow to
        # connect would never be reached. It ends with its batch, and what it missed is sent again,
        # which receivers recognise.
        send.until = -inf
        self.late.add(task)
        task.add_done_callback(self.late.discard)
        task.add_done_callback(has_succeeded)
        self.pause(region, "", OutcomeUnknown(f"region {region} does not answer"), began)

    def pause(self, region: str, queue: str, reason: LockstepError, began: float) -> None:
        """Try the region, or one queue of it, no more for a while."""
        breaker, now = self.breakers[region, queue], self.clock.now()
        if breaker.reason is not None and began <= breaker.paused_at:
            # A failure counts once, however many tries met it side by side.
            return
        breaker.record(reason, now)
        where = f"{queue!r} of region {region}" if queue else f"region {region}"
        log.warning("nothing is sent to %s for %g s: %s", where, breaker.pause_seconds, reason)

    async def send_to_region(
        self, region: str, refused: dict[str, str] | None, progress: Progress
    ) -> Delivered:
        """Send all that the region misses; a queue that needs a person first holds no other up."""
        outbox, taken = progress.outbox, progress.sends[region].taken
        blocked = dict(outbox.blocked.get(region, {}))
        is_over = True
        for queue, missing in outbox.missing_in(region).items():
            try:
                if missing and not await self.send_to_queue(
                    region, queue, missing, refused, progress
                ):
                    is_over = False
                    break
            except Misconfigured as error:
                blocked[queue] = shorten(str(error))
            except (Unavailable, OutcomeUnknown):
                # What was taken before is remembered; the rest is sent in order by a later try.
                is_over = False
                break
            else:
                taken.append(queue)
        return Delivered((region,) if is_over else (), blocked={region: blocked} if blocked else {})

    async def send_to_queue(
        self,
        region: str,
        key: str,
        missing: Sequence[Missing],
        refused: dict[str, str] | None,
        progress: Progress,
    ) -> bool:
        """Send in order, batch after batch; `key` is the queue as the outbox names it.

        False where the time was up before the last batch. Where region or queue is paused, what
        paused it is raised again.
        """
        # Resolved here and never stored: a corrected setting holds for what is pending.
        queue = self.queues.resolve(progress.outbox.destination_of(key))
        total = len(progress.outbox.messages_for(key))
        began = self.clock.now()
        of_region, of_queue = self.breakers[region, ""], self.breakers[region, queue]
        for breaker in (of_region, of_queue):
            if breaker.reason is not None and not breaker.may_be_tried(began):
                raise breaker.reason.with_traceback(None)
        probed = [breaker for breaker in (of_region, of_queue) if breaker.reason is not None]
        for breaker in probed:
            breaker.is_probed = True
        try:
            today = self.clock.today()
            # Only neighbours go together, so that messages of a session never overtake each other.
            for delay, wave in groupby(missing, lambda m: self.delay_in(region, m[1], today)):
                for batch in split_into_batches(wave):
                    if not progress.sends[region].may_begin():
                        return False
                    messages = [message for _, message in batch]
                    await self.send_wave(region, queue, messages, delay, refused)
                    of_region.record(None, began)
                    of_queue.record(None, began)
                    await progress.add(region, key, Part(batch[-1][0] + 1, total))
        except OutcomeUnknown as error:
            self.pause(region, "", error, began)
            raise
        except Unavailable as error:
            # A refusal is an answer, so the region is not silent.
            of_region.record(None, began)
            self.pause(region, queue, error, began)
            raise
        finally:
            for breaker in probed:
                breaker.is_probed = False
        return True

    async def send_wave(
        self,
        region: str,
        queue: str,
        messages: Sequence[Message],
        delay: float,
        refused: dict[str, str] | None,
    ) -> None:
        """Send a batch of messages that become visible together, in order.

        Where `refused` is given, it names the messages that no queue takes, and tombstones take
        their places; what this queue refuses is added to it. Otherwise InvalidMessage is raised.
        """
        if refused is None:
            await self.bus.send(region, queue, messages, delay_seconds=delay)
            return
        # What another queue or an earlier try refused is not tried here, so that its tombstone goes
        # to every region that has not taken the message itself.
        possible = [make_tombstone(m) if m.id in refused else m for m in messages]
        try:
            await self.bus.send(region, queue, possible, delay_seconds=delay)
            return
        except InvalidMessage:
            # The queue has taken none, and does not say which one it refuses: send them one by one,
            # so that each keeps its place.
            pass
        for message in possible:
            try:
                await self.bus.send(region, queue, [message], delay_seconds=delay)
            except InvalidMessage as error:
                # The tombstone goes out before the next message: without it there would be a hole
                # in the numbers, behind which the receiver parks everything.
                tombstone = make_tombstone(message)
                await self.bus.send(region, queue, [tombstone], delay_seconds=delay)
                refused[message.id] = str(error)

    def delay_in(self, region: str, message: Message, today: float) -> float:
        """Return how long the region's copy stays invisible: the preferred region comes first.

        A scheduled message waits for its time as well, in seconds since 1970 as `today` is.
        """
        delay = 0.0
        if region != self.preferred_region(message.session):
            of_type = self.delays.get(message.type, self.secondary_delay_seconds)
            delay = of_type if message.delay is None else message.delay
        if message.reminder is not None:
            delay += max(0.0, sending_time(message) - today)
        return delay

    def preferred_region(self, session: str) -> str:
        """The region that normally does the session's work."""
        # Every producer and every worker has to come to the same answer without asking anybody, so
        # it follows from the session's name alone. If they differ, both regions do the work, once.
        if not self.affinity:
            return self.regions[0]
        if self.weights:
            return weighted_region(session, self.weights)
        return home_region(session, self.regions)

    def resume(self, queue: str) -> None:
        """Try a queue again at once in every region, for a person who has changed something."""
        for region in self.regions:
            self.breakers.pop((region, self.queues.resolve(queue)), None)

    def explain(self, region: str, queue: str) -> str:
        """Return why the last try of the region, or of its queue, failed."""
        return "; ".join(map(str, self.last_failures(region, queue))) or "no answer yet"

    def last_failures(self, region: str, queue: str) -> list[LockstepError]:
        """The failures of the last tries of the region and of its queue."""
        tried = (self.breakers.get((region, name)) for name in ("", self.queues.resolve(queue)))
        return [one.reason for one in tried if one is not None and one.reason is not None]

    def is_reachable(self, region: str) -> bool:
        now = self.clock.now()
        return all(breaker.may_be_tried(now) for breaker in self.failed_breakers(region))

    def has_failed(self, region: str) -> bool:
        """Return whether the last try of the region, or of one of its queues, failed."""
        return any(self.failed_breakers(region))

    def is_being_probed(self, region: str) -> bool:
        """Return whether a send shows just now if the region, or one of its queues, is back."""
        return any(one.is_probed for (name, _), one in self.breakers.items() if name == region)

    def failed_breakers(self, region: str) -> Iterator[Breaker]:
        """Return the region's own failures, which excludes what needs a person first."""
        for (of_region, _), breaker in self.breakers.items():
            if of_region == region and not isinstance(breaker.reason, Misconfigured | None):
                yield breaker

    def address_all(self, queue: str, messages: Sequence[Message]) -> Outbox:
        """An outbox that has these messages pending for all regions."""
        return address(queue, messages, self.regions)


def split_into_batches(missing: Iterable[Missing]) -> Iterator[list[Missing]]:
    """Yield neighbours that surely fit one batch of a queue; one that is larger goes alone."""
    batch, size = list[Missing](), 0
    for one in missing:
        size += wire_bytes(one[1])
        if batch and size > BATCH_BYTES_MAX:
            yield batch
            batch, size = [], wire_bytes(one[1])
        batch.append(one)
    if batch:
        yield batch


def has_succeeded(send: asyncio.Task[Delivered]) -> bool:
    """Return whether a send has ended with nothing left to wait for in its region.

    Asking also tells the event loop that somebody has heard of what the send raised.
    """
    return not send.cancelled() and send.exception() is None and bool(send.result().regions)

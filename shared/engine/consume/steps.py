"""Run the steps of one run of a handler, and keep in its claim what is known of each.

A step is written down before its call, unless it may be repeated anyway, and with its result after
it. Only then does the handler see the result. So whoever takes the claim over knows what happened
and what may have happened. What the handler does with an exception does not matter: once the claim
is lost, or a person has to decide, no step of this run begins any more and its result is dropped.

The bookkeeping is done on the worker's loop, where the journal is; the calls run where the handler
does, in a loop of its own.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from contextvars import copy_context
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from shared.domain import next_entry
from shared.domain.errors import NotStorable, OutcomeUnknown, Unavailable
from shared.domain.handler import keep_captured
from shared.domain.journal import Entry, Status
from shared.domain.steps import (
    RESULT_BYTES_MAX,
    STEPS_MAX,
    AskOutside,
    NotDone,
    OnUnknown,
    StepFailed,
    StepRecord,
    StepRequest,
    StepsChanged,
    StepStatus,
    StepUnknown,
    keep_result,
    unknown_steps,
)
from shared.engine.handle.handle import RETRY_SECONDS
from shared.engine.handle.limit import HandlerCutOff, HandlerThreads, TookTooLong, ignore_result
from shared.engine.handle.raised import describe_error
from shared.engine.worker import Worker
from shared.ports import NOTHING_CARRIED, Carried, WriteResult
from shared.storage.journal import Journal

# A handler that runs again is given what is known without waiting, so whatever it asks for side by
# side it has asked for within a turn of its loop. One that waits for so long has been changed.
ASKED_SECONDS = 1.0


class ClaimLost(Exception):
    """Another attempt holds the claim, or it cannot be written: nothing of this run counts."""


class RunOver(Exception):
    """The handler has returned or raised, so nothing it left behind begins a step."""


class RunEnded(BaseException):
    """Raised inside a handler whose run is over, past every `except Exception` of its own."""


class ClaimSteps:
    """The steps of one run.

    `ended` is why no step of it begins any more, None while they do. What is under way may still be
    written down then, until the run is closed.
    """

    def __init__(self, worker: Worker, claim: Entry, threads: HandlerThreads) -> None:
        self.worker = worker
        self.clock = worker.clock
        self.claim = claim
        self.threads = threads
        self.loop = asyncio.get_running_loop()
        # What is known by the claim, and besides what has happened and is not yet noted.
        self.known: dict[str, StepRecord] = dict(claim.steps)
        self.kept: dict[str, StepRecord] = dict(claim.steps)
        self.earlier = frozenset(claim.steps)
        self.expected: set[str] = set()
        self.asked: set[str] = set()
        self.running: set[str] = set()
        self.moved = asyncio.Event()
        self.unwritten: dict[str, StepRecord] = {}
        self.writing = asyncio.Lock()
        self.ended: BaseException | None = None
        self.is_closed = False

    # Called by the handler, in its own loop.

    def expect(self, request: StepRequest) -> None:
        """Note that the handler asked for a step, which it has to await."""
        self.expected.add(request.name)

    async def run(self, request: StepRequest) -> Any:
        """The result of a step, as JSON. Raises StepFailed where it surely did not happen."""
        try:
            known = await self.at_worker(self.begin(request))
            if known is None or known.status is StepStatus.BEGUN:
                known = await self.call(request, is_unknown=known is not None)
        finally:
            self.tell_worker(partial(self.leave, request.name))
        if known.status is StepStatus.FAILED:
            failed = StepFailed(f"step {request.name!r} was not done: {known.reason}")
            failed.step = request.name
            raise failed
        # A copy: what the handler does to it is not what is known.
        return deepcopy(known.result)

    async def call(self, request: StepRequest, *, is_unknown: bool) -> StepRecord:
        """Do a step until it is known what came of it, or what its attempts allow is spent."""
        policy = request.on_unknown
        tries = silences = 0
        why = "the worker that began it ended"
        # A refusal tells of one call. What may be repeated is not written down before it, so where
        # this is no first run an earlier one may have called it, too.
        lease, is_repeated = self.claim.lease, policy is OnUnknown.REPEAT
        is_first = lease is not None and lease.tries <= 1 and self.claim.resolution is None
        is_doubtful = is_repeated and not is_first
        while True:
            asks = is_unknown and isinstance(policy, AskOutside)
            used = silences if asks else tries
            if is_unknown and (policy is OnUnknown.HALT or used >= request.attempts):
                await self.at_worker(self.leave_unknown(request, why))
            if tries + silences > 0:
                await self.clock.sleep(RETRY_SECONDS * (tries + silences))
            tries += not asks
            try:
                if isinstance(policy, AskOutside) and asks:
                    result = await self.call_outside(request, policy.look_up)
                else:
                    result = await self.call_outside(request, request.call, *request.arguments)
            except (asyncio.CancelledError, GeneratorExit, HandlerCutOff, RunEnded):
                raise
            except NotDone as error:
                is_unknown, why = is_doubtful, describe_error(error)
                if tries >= request.attempts and not is_unknown:
                    failed = StepRecord(request.key, StepStatus.FAILED, reason=why)
                    return await self.at_worker(self.note(request.name, failed))
            except BaseException as error:
                # Whatever it is: a call that raised may have happened, unless it says otherwise.
                is_unknown, why = True, describe_error(error)
                silences += asks
                is_doubtful = is_repeated
            else:
                return await self.at_worker(self.finish(request, result))

    async def call_outside(
        self, request: StepRequest, call: Callable[..., Any], *arguments: Any
    ) -> Any:
        """Call the team's code within the limit of the step; it has a thread if it is not async."""
        try:
            async with asyncio.timeout(request.seconds) as limit:
                if inspect.iscoroutinefunction(call):
                    return await call(*arguments, key=request.key)
                run = partial(copy_context().run, call, *arguments, key=request.key)
                result = await asyncio.get_running_loop().run_in_executor(self.threads, run)
                return await result if inspect.isawaitable(result) else result
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TookTooLong(request.seconds or 0.0) from error

    async def at_worker[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Do the bookkeeping on the worker's loop; a handler that is cut off does not stop it."""
        done: asyncio.Future[T]
        if asyncio.get_running_loop() is self.loop:
            done = asyncio.ensure_future(work)
        else:
            done = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))
        done.add_done_callback(ignore_result)
        return await asyncio.shield(done)

    def tell_worker(self, what: Callable[[], None]) -> None:
        if asyncio.get_running_loop() is self.loop:
            what()
        else:
            self.loop.call_soon_threadsafe(what)

    # On the worker's loop.

    async def begin(self, request: StepRequest) -> StepRecord | None:
        """Return what is known of a step; None where it is new, and then it is written down."""
        name = request.name
        if self.ended is not None:
            raise RunEnded
        if name in self.asked:
            self.end(StepsChanged(f"the handler asks for two steps {name!r} of one message"))
        self.asked.add(name)
        self.running.add(name)
        self.moved.set()
        known = self.known.get(name)
        if known is not None:
            if known.key != request.key:
                self.end(StepsChanged(f"step {name!r} began with the key {known.key!r} before"))
            return known
        await self.wait_for_earlier()
        if len(self.known) >= STEPS_MAX:
            self.end(StepsChanged(f"step {name!r} is one of more than {STEPS_MAX} of one message"))
        if request.on_unknown is not OnUnknown.REPEAT:
            began = self.clock.now()
            await self.note(name, StepRecord(request.key, StepStatus.BEGUN))
            if self.clock.now() - began >= self.worker.policy.lease_seconds:
                # This worker was stopped meanwhile, and whoever took over has decided.
                self.end(ClaimLost())
        return None

    async def wait_for_earlier(self) -> None:
        """Return once the handler has asked for all that earlier runs began."""
        try:
            async with asyncio.timeout(ASKED_SECONDS):
                while self.earlier - self.asked:
                    self.moved.clear()
                    await self.moved.wait()
        except TimeoutError:
            self.end(explain_change(self.earlier - self.asked))

    async def finish(self, request: StepRequest, result: Any) -> StepRecord:
        """Keep the result of a step that happened."""
        try:
            kept = keep_captured(request.name, result)
            record = keep_result(self.kept, request.key, kept, self.claim.position)
        except NotStorable as error:
            # It happened, and nobody will ever know its result from here.
            if request.name not in self.known:
                await self.note(request.name, StepRecord(request.key, StepStatus.BEGUN))
            await self.leave_unknown(request, str(error))
        self.kept[request.name] = record
        return await self.note(request.name, record)

    async def leave_unknown(self, request: StepRequest, why: str) -> None:
        """End the run, because a person has to say what came of a step."""
        what = f"step {request.name!r} may have happened, key {request.key!r}"
        self.end(StepUnknown(f"{what}: {why}"))

    def leave(self, name: str) -> None:
        """Note that nothing of a step is under way any more."""
        self.running.discard(name)
        self.moved.set()

    def end(self, why: BaseException) -> NoReturn:
        """No step of this run begins any more. The first reason stays."""
        self.ended = self.ended or why
        raise RunEnded

    async def read_results(self) -> None:
        """Read the results that earlier runs put beside the claim, before the handler asks.

        Raises ClaimLost where the store does not help, and StepUnknown where a result is gone.
        """
        read, session = self.worker.journal.result, self.claim.session
        apart = {
            n: partial(read, session, s.beside[0], n) for n, s in self.known.items() if s.beside
        }
        try:
            results = await asyncio.gather(*map(self.insist, apart.values()))
        except Unavailable as error:
            self.worker.failure_log.add("reading the result of a step", "the journal", error)
            raise ClaimLost from error
        for name, result in zip(apart, results, strict=True):
            one = self.known[name]
            self.known[name] = replace(one, result=result)
            if result is None:
                with suppress(RunEnded):
                    await self.note(name, StepRecord(one.key, StepStatus.BEGUN))
                    self.end(StepUnknown(f"the result of step {name!r}, key {one.key!r}, is gone"))
                raise self.ended or ClaimLost()

    async def note(self, name: str, record: StepRecord) -> StepRecord:
        """Write into the claim what is known of a step, together with others that wait for that."""
        self.unwritten[name] = record
        async with self.writing:
            if self.is_closed:
                raise RunEnded
            while name in self.unwritten:
                noted = take_note(self.unwritten)
                try:
                    await self.write(noted)
                except BaseException as error:
                    # The handler must neither catch what is no failure of its own nor go on.
                    self.is_closed = True
                    if isinstance(error, Unavailable | OutcomeUnknown):
                        self.worker.failure_log.add("noting a step", "the journal", error)
                        self.end(ClaimLost())
                    self.end(error)
                self.known |= noted
        return record

    async def write(self, noted: dict[str, StepRecord]) -> None:
        """Write the claim with more of its steps known.

        Raises ClaimLost, Unavailable or OutcomeUnknown.
        """
        results = {name: one.result for name, one in noted.items() if one.beside}
        if not await self.insist(
            lambda: change_claim(
                self.worker.journal,
                self.claim,
                lambda stored: next_entry.note_steps(stored, noted),
                Carried(results=results),
            )
        ):
            raise ClaimLost

    async def insist[T](self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call of the journal until it helps, a few times. Raises as its last try."""
        failed, waits = 0, self.worker.policy.waits
        while True:
            try:
                return await call()
            except (Unavailable, OutcomeUnknown):
                failed += 1
                if failed >= waits.unknown_tries:
                    raise
                await self.clock.sleep(waits.poll_seconds * failed)

    async def close(self, seconds: float) -> None:
        """Begin no step any more, and write down what is under way, for so long at most.

        Raises what ended the steps before: ClaimLost, StepUnknown or StepsChanged.
        """
        ended, self.ended = self.ended, self.ended or RunOver()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                while self.running:
                    self.moved.clear()
                    await self.moved.wait()
        self.is_closed = True
        if ended is not None:
            raise ended

    def require_all_known(self) -> None:
        """Raise StepsChanged or StepUnknown where a handler returned and left steps behind."""
        if unawaited := self.expected - self.asked:
            raise StepsChanged(f"the handler does not await step {join(unawaited)}")
        if unasked := self.earlier - self.asked:
            raise explain_change(unasked)
        if unknown := unknown_steps(self.known):
            raise StepUnknown(f"step {join(unknown)} was under way when the handler returned")


def take_note(unwritten: dict[str, StepRecord]) -> dict[str, StepRecord]:
    """Take what one note writes: as much as a batch takes beside the claim, in its order."""
    taken: dict[str, StepRecord] = {}
    size = 0
    for name, one in list(unwritten.items()):
        size += one.beside.size if one.beside else 0
        if size > RESULT_BYTES_MAX:
            break
        taken[name] = unwritten.pop(name)
    return taken


async def change_claim(
    journal: Journal,
    claim: Entry,
    change: Callable[[Entry], Entry],
    carried: Carried = NOTHING_CARRIED,
) -> Entry | None:
    """Write a claim as a change makes it of the stored one; None where it is lost or has ended.

    Raises Unavailable or OutcomeUnknown.
    """
    # Ends with the lease at the latest, as what others park beside a claim does not renew it.
    while True:
        stored = await journal.stored_entry(claim.session, claim.position)
        if stored is None or stored.entry.attempt != claim.attempt:
            return None
        if stored.entry.status is not Status.WORKING:
            return None
        changed = change(stored.entry)
        # A try before may have had no answer, and been written all the same.
        if changed == stored.entry:
            return changed
        if await journal.replace(changed, stored.version, carried) is WriteResult.CREATED:
            return changed


def explain_change(unasked: Iterable[str]) -> StepsChanged:
    return StepsChanged(f"the handler does not ask any more for step {join(unasked)}, which began")


def join(names: Iterable[str]) -> str:
    return " and ".join(map(repr, sorted(names)))

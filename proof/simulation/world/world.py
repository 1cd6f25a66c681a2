"""Both regions with their hosts and all who use them, run until nothing is left to do."""

import asyncio
from collections.abc import Sequence
from itertools import chain

from proof.simulation.world import clients
from proof.simulation.world.askers import Askers
from proof.simulation.world.cloud import REGIONS, Cloud
from proof.simulation.world.faults import FaultProfile, SeededRandom
from proof.simulation.world.host import QUEUE, SWEEP_SECONDS, Host, SagaWorker
from proof.simulation.world.process import PAUSE_SECONDS_MAX
from proof.simulation.world.recorder import state_of
from proof.simulation.world.variant import Variant
from proof.simulation.world.virtual_time import now
from proof.simulation.world.workload import Workload
from shared.domain.handler import Handlers
from shared.domain.saga.plan import key_of

RESTART_SECONDS_MAX = 6.0
# How long all messages may take, and how long it may take to finish what they caused.
FINISH_SECONDS_MAX = 900.0
POLL_SECONDS = 2.0
# What is scheduled is waited for as well, so far ahead; each message of it may schedule another.
SCHEDULED_SECONDS_MAX = 24 * 3600.0


class World(Cloud):
    def __init__(
        self,
        rng: SeededRandom,
        profile: FaultProfile,
        variant: Variant,
        handlers: Handlers,
        correct: clients.Correct = clients.uncorrected,
        counterpart: clients.Counterpart = clients.NO_COUNTERPART,
    ) -> None:
        super().__init__(rng, profile, variant, handlers)
        self.senders = clients.Senders(self)
        self.saga_clients = clients.SagaClients(self)
        self.operator = clients.Operator(self, correct, counterpart)
        self.hosts: dict[str, Host] = {}
        self.askers = Askers(rng, self.hosts)
        # Producer groups in which one producer took over from another.
        self.contested: set[str] = set()
        # Sessions in which that happened, whoever numbers.
        self.taken_over: set[str] = set()

    async def run(self, load: Workload, requests: Sequence[clients.SagaRequest] = ()) -> None:
        """Run until nothing is left to do; raises TimeoutError where that never happens."""
        names = [(f"{r}-{n}", r) for n in range(self.variant.hosts) for r in REGIONS]
        tasks = [asyncio.create_task(self.run_host(name, region)) for name, region in names]
        tasks += [asyncio.create_task(self.disturb_host(name)) for name, _ in names]
        tasks.append(asyncio.create_task(self.operator.work()))
        self.contested = {plan.group for plan in load.publish_plans if plan.level}
        numbered = [message for series in load.series for message in series.messages]
        self.taken_over = {plan.session for plan in load.publish_plans if plan.level} | {
            message.session for message in numbered if message.number and message.number.level
        }
        for hub in self.hubs.values():
            if hub.lost_at is not None:
                asyncio.get_running_loop().call_at(hub.lost_at, hub.lose_everything)
        try:
            async with asyncio.timeout(FINISH_SECONDS_MAX):
                await asyncio.gather(
                    self.senders.send(load),
                    self.saga_clients.run(requests),
                    self.askers.run(load.asks),
                )
            await self.finish()
        finally:
            for host in self.hosts.values():
                host.process.kill()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def run_host(self, name: str, region: str) -> None:
        while True:
            process = self.new_process(name, region)
            services = self.services(process, is_only_worker=True)
            namespace, feed = self.namespaces[region], self.feeds[region]
            host = Host(process, services, namespace, feed, self.observed, calls=self.variant.calls)
            if region in self.hubs:
                hub, saga_feed = self.hubs[region], self.saga_feeds[region]
                host.saga_worker = SagaWorker(process, services, hub, saga_feed, self.observed)
            self.hosts[name] = host
            host.start()
            await process.killed.wait()
            await asyncio.sleep(self.rng.delay(RESTART_SECONDS_MAX))

    async def disturb_host(self, name: str) -> None:
        injector = self.injector
        while now() < injector.profile.faults_end_at:
            await asyncio.sleep(self.rng.delay(injector.profile.faults_end_at))
            process = self.hosts[name].process
            if process.is_killed:
                continue
            if injector.inject(injector.profile.kills, "host killed", name, now()):
                process.kill()
            elif injector.inject(injector.profile.kills, "host frozen", name, now()):
                process.freeze()

    async def finish(self) -> None:
        await asyncio.sleep(max(0.0, self.injector.profile.faults_end_at - now()))
        began = now()
        while left := self.unfinished():
            if now() > self.give_up_at(began):
                raise TimeoutError(", ".join(left))
            await asyncio.sleep(POLL_SECONDS)
        give_up_at = now() + FINISH_SECONDS_MAX
        if self.variant.small_limits:
            # Three sweeps without faults compact what is old enough. A host that was frozen may
            # write once more when it goes on.
            while (left_seconds := self.old_at() + 3 * SWEEP_SECONDS - now()) > 0:
                if now() > give_up_at:
                    raise TimeoutError("the journal is written to without end")
                await asyncio.sleep(left_seconds)

    def give_up_at(self, began: float) -> float:
        """Return when all has to be done: some time after the last scheduled message or timer."""
        queued = (one for namespace in self.namespaces.values() for one in namespace.queues[QUEUE])
        timers = (hub.timers_end_at for hub in self.hubs.values())
        last = max([began, *timers, *(one.visible_at for one in queued)])
        return min(last, began + SCHEDULED_SECONDS_MAX) + FINISH_SECONDS_MAX

    def old_at(self) -> float:
        """Return when all of the journal is older than the retention and no host is frozen.

        Of a session that has ended nothing is left by then, unless a person is asked for.
        """
        retention, undisturbed_at = (
            self.policy.retention_seconds,
            self.injector.profile.faults_end_at,
        )
        partitions = self.journal.partitions.values()
        # What is left of an ended session is marked anew in each retention.
        written = [
            d["_ts"] for documents in partitions for d in documents.values() if not d.get("ended")
        ]
        recorded = (entries.values() for entries in self.journal.store.entries.values())
        ends = [entry["_ts"] for entry in chain.from_iterable(recorded) if entry.get("ended")]
        old_at = max(written, default=0.0) + retention
        if ends:
            # A look comes with the first sweep after each retention.
            looks = (1 + SWEEP_SECONDS / retention) * (self.policy.copies_seconds + 5 * retention)
            old_at = max(old_at, max(*ends, undisturbed_at + PAUSE_SECONDS_MAX) + looks)
        return max(old_at, undisturbed_at + PAUSE_SECONDS_MAX)

    def unfinished(self) -> list[str]:
        queued = [
            f"{len(left)} messages in {region}"
            for region, namespace in self.namespaces.items()
            if (left := namespace.queues[QUEUE])
        ]
        flagged = [
            f"{document['session']}/{document['id']} is {flag}"
            for session in list(self.journal.partitions)
            for document in self.journal.store.flagged(session)
            for flag in ("pending", "blocked", "claimed", "waiting")
            if document.get(flag)
        ]
        halted = [f"{session} is halted" for session, *_ in clients.halted_sessions(self.journal)]
        instances = [name for hub in self.hubs.values() for name in hub.unfinished()]
        sagas = filter(key_of, list(self.journal.partitions)) if self.hubs else ()
        running = [
            f"{session} is running"
            for session in sagas
            if state_of(self.journal, session).get("state") == "running"
        ]
        return queued + flagged + halted + instances + running

"""Two regions with their hosts, brokers, store and senders, and a run from start to rest."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from shared.domain.handling import Handlers
from shared.domain.journal import Owner
from shared.domain.message import Message
from shared.domain.saga import key_of
from shared.domain.saga_record import kinds_of
from shared.ports import Journal
from shared.usecases.assemble import assemble
from shared.usecases.deliver import Delivery
from shared.usecases.publish import Producer
from shared.usecases.services import Services
from simulation.broker import Namespace
from simulation.clients import Correct, Errand, Errands, Operator, Senders, uncorrected
from simulation.faults import Chance, Climate, Weather
from simulation.host import QUEUE, SWEEP_SECONDS, Feed, Host, SagaFeed, SagaWorker
from simulation.process import PAUSE_SECONDS_MAX, DistantBus, DistantJournal, Process, ProcessClock
from simulation.recorder import Identity, Tally, WitnessedCommander, WitnessedJournal, state_of
from simulation.task_hub import TaskHub
from simulation.variant import Variant
from simulation.virtual_time import now
from simulation.workload import Workload

REGIONS = ("east", "west")
RESTART_SECONDS_MAX = 6.0
REST_SECONDS_MAX = 900.0
LOOK_SECONDS = 2.0


class World:
    """Everything there is."""

    def __init__(
        self,
        chance: Chance,
        climate: Climate,
        variant: Variant,
        handlers: Handlers,
        correct: Correct = uncorrected,
    ) -> None:
        self.chance = chance
        self.variant = variant
        self.handlers = handlers
        self.policy = variant.policy
        self.weather = Weather(climate, chance)
        self.tally = Tally()
        self.journal = WitnessedJournal()
        self.journal.fail_over = self.weather.interval(
            climate.failovers, "write region fails over", "store"
        )
        self.namespaces = {region: self.new_namespace(region) for region in REGIONS}
        self.feeds = {r: Feed(r, self.journal.store, self.weather) for r in REGIONS}
        # Only where there are sagas; without them no region has a task hub.
        self.hubs: dict[str, TaskHub] = self.new_hubs() if kinds_of(handlers) else {}
        self.saga_feeds = {r: SagaFeed(r, self.journal.store, self.weather) for r in self.hubs}
        self.commands: dict[Identity, list[Message]] = defaultdict(list)
        self.senders = Senders(self)
        self.errands = Errands(self)
        self.operator = Operator(self, correct)
        self.hosts: dict[str, Host] = {}
        self.starts = 0
        # Producer groups in which one took over from another.
        self.contested: set[str] = set()

    def new_namespace(self, region: str) -> Namespace:
        """A region's queues, which may be out of reach for a while."""
        down = self.weather.interval(self.weather.climate.outages, "namespace down", region)
        return Namespace(region, self.weather, down)

    def new_hubs(self) -> dict[str, TaskHub]:
        """A task hub for each region; one of them may forget everything."""
        weather, climate = self.weather, self.weather.climate
        lost = weather.interval(climate.hub_losses, "task hub lost", "a task hub")
        losing = self.chance.pick(REGIONS)
        return {
            region: TaskHub(
                region,
                weather,
                weather.interval(climate.hub_outages, "task hub down", region),
                lost_at=lost[0] if lost and region == losing else None,
                begins_again=self.chance.delay(1.0) < 0.5,
            )
            for region in REGIONS
        }

    def new_process(self, name: str, region: str) -> Process:
        """A process with clocks of its own."""
        skew = (self.chance.delay(2.0) - 1.0) * self.weather.climate.skew_seconds
        return Process(name, region, self.weather, skew)

    def delivery(self, process: Process) -> Delivery:
        """How a process reaches the regions."""
        return Delivery(
            DistantBus(process, self.namespaces),
            ProcessClock(process),
            REGIONS,
            self.variant.delay_seconds,
            spread=self.variant.spread,
        )

    def journal_of(self, process: Process) -> Journal:
        """The journal as a process reaches it; its methods are those of the twin."""
        return cast(Journal, DistantJournal(process, self.journal))

    def producer(self, process: Process) -> Producer:
        """The producer of a process."""
        return Producer(self.journal_of(process), self.delivery(process), QUEUE)

    def services(self, process: Process) -> Services:
        """The use cases of a process."""
        self.starts += 1
        services = assemble(
            self.journal_of(process),
            self.delivery(process),
            ProcessClock(process),
            Owner(process.region, f"{process.name}/{self.starts}"),
            self.handlers,
            self.producer(process),
            self.policy,
        )
        commander = WitnessedCommander(services.journal, services.consumer, self.commands)
        return replace(services, commander=commander)

    async def run_host(self, name: str, region: str) -> None:
        """A host that is started again whenever it dies."""
        while True:
            process = self.new_process(name, region)
            namespace, feed = self.namespaces[region], self.feeds[region]
            services = self.services(process)
            host = Host(process, services, namespace, feed, self.tally)
            if region in self.hubs:
                hub, saga_feed = self.hubs[region], self.saga_feeds[region]
                host.saga_worker = SagaWorker(process, services, hub, saga_feed, self.tally)
            self.hosts[name] = host
            host.start()
            await process.death.wait()
            await asyncio.sleep(self.chance.delay(RESTART_SECONDS_MAX))

    async def strike_host(self, name: str) -> None:
        """Kill or freeze a host in the middle of whatever it does."""
        weather = self.weather
        while now() < weather.climate.fair_after:
            await asyncio.sleep(self.chance.delay(weather.climate.fair_after))
            process = self.hosts[name].process
            if process.is_dead:
                continue
            if weather.strikes(weather.climate.kills, "host killed", name, now()):
                process.die()
            elif weather.strikes(weather.climate.kills, "host frozen", name, now()):
                process.freeze()

    async def run(self, load: Workload, errands: Sequence[Errand] = ()) -> None:
        """Send everything, and wait until all is at rest; raises TimeoutError if it never is."""
        names = [(f"{r}-{n}", r) for n in range(self.variant.hosts) for r in REGIONS]
        tasks = [asyncio.create_task(self.run_host(name, region)) for name, region in names]
        tasks += [asyncio.create_task(self.strike_host(name)) for name, _ in names]
        tasks.append(asyncio.create_task(self.operator.work()))
        self.contested = {line.group for line in load.lines if line.level}
        for hub in self.hubs.values():
            if hub.lost_at is not None:
                asyncio.get_running_loop().call_at(hub.lost_at, hub.lose_everything)
        try:
            async with asyncio.timeout(REST_SECONDS_MAX):
                await asyncio.gather(self.senders.send(load), self.errands.run(errands))
            await self.rest()
        finally:
            for host in self.hosts.values():
                host.process.die()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def rest(self) -> None:
        """Wait until nothing is left to do and nothing goes wrong any more."""
        await asyncio.sleep(max(0.0, self.weather.climate.fair_after - now()))
        give_up_at = now() + REST_SECONDS_MAX
        while self.unrest():
            if now() > give_up_at:
                raise TimeoutError(", ".join(self.unrest()))
            await asyncio.sleep(LOOK_SECONDS)
        if self.variant.small_limits:
            # Three sweeps in fair weather compact what is old enough. Whoever wakes up late may
            # write once more.
            while (left := self.old_at() + 3 * SWEEP_SECONDS - now()) > 0:
                if now() > give_up_at:
                    raise TimeoutError("the journal is written to without end")
                await asyncio.sleep(left)

    def old_at(self) -> float:
        """When all of the journal is older than the retention, and nobody is frozen any more."""
        partitions = self.journal.partitions.values()
        written = [d["_ts"] for documents in partitions for d in documents.values()]
        old_at = max(written, default=0.0) + self.policy.retention_seconds
        return max(old_at, self.weather.climate.fair_after + PAUSE_SECONDS_MAX)

    def unrest(self) -> list[str]:
        """What is still to be done."""
        queued = [
            f"{len(namespace.queues[QUEUE])} messages in {namespace.region}"
            for namespace in self.namespaces.values()
            if namespace.queues[QUEUE]
        ]
        flags = ("owing", "claimed", "waiting")
        flagged = [
            f"{document['session']}/{document['id']} is {flag}"
            for session in list(self.journal.partitions)
            for document in self.journal.store.flagged(session)
            for flag in flags
            if document.get(flag)
        ]
        halted = [f"{session} is halted" for session, *_ in self.operator.halted()]
        under_way = [note for hub in self.hubs.values() for note in hub.unrest()]
        return queued + flagged + halted + under_way + self.running_sagas()

    def running_sagas(self) -> list[str]:
        """Sagas that have started and have not ended."""
        if not self.hubs:
            return []
        sessions = [session for session in self.journal.partitions if key_of(session)]
        states = {session: state_of(self.journal, session).get("state") for session in sessions}
        return [f"{session} is running" for session, state in states.items() if state == "running"]

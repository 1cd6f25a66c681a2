"""Two regions with their hosts, brokers, store and producers, and a run from start to rest."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from shared.adapters.memory import MemoryJournal
from shared.domain.errors import CallerError, LockstepError
from shared.domain.handling import Handlers
from shared.domain.journal import Owner
from shared.domain.producer import ProducerOptions
from shared.usecases.assemble import Policy, assemble
from shared.usecases.commit import Patience
from shared.usecases.deliver import Delivery
from shared.usecases.publish import Producer
from shared.usecases.resolve import Action, Decision
from shared.usecases.services import Services
from simulation.broker import Namespace
from simulation.chance import Chance
from simulation.host import QUEUE, Host, now
from simulation.outside import DistantBus, DistantJournal, StoreClock
from simulation.process import Process, ProcessClock
from simulation.weather import Climate, Weather
from simulation.workload import Publication, Workload

REGIONS = ("east", "west")
HOSTS_PER_REGION = 2
OPERATOR_SECONDS = 40.0
RESTART_SECONDS_MAX = 20.0
SKEW_SECONDS_MAX = 600.0
REST_SECONDS_MAX = 3_600.0
POLICY = Policy(
    output_queue="out",
    error_queue="errors",
    patience=Patience(gap_seconds=5.0, poll_seconds=0.5),
    lag_seconds=5.0,
    acknowledge_seconds=1.0,
    lease_seconds=20.0,
    retention_seconds=60.0,
)


@dataclass
class World:
    """Everything there is."""

    chance: Chance
    climate: Climate
    handlers: Handlers
    policy: Policy = POLICY
    delay_seconds: float = 3.0
    hosts: dict[str, Host] = field(default_factory=dict)
    starts: int = 0

    def __post_init__(self) -> None:
        self.weather = Weather(self.climate, self.chance)
        self.journal = MemoryJournal(StoreClock())  # type: ignore[arg-type]
        self.namespaces = {region: Namespace(region, self.weather) for region in REGIONS}
        for namespace in self.namespaces.values():
            if self.weather.strikes(self.climate.outages, f"{namespace.region} down", 0.0):
                begin = self.chance.delay(60.0)
                namespace.downs.append((begin, begin + self.chance.delay(60.0)))

    def new_process(self, name: str, region: str) -> Process:
        """A process with clocks of its own."""
        skew = (self.chance.random.random() - 0.5) * 2 * SKEW_SECONDS_MAX
        return Process(name, region, self.weather, skew if self.climate.calls else 0.0)

    def services(self, process: Process) -> Services:
        """The use cases of a process."""
        journal = DistantJournal(process, self.journal)
        clock = ProcessClock(process)
        delivery = Delivery(
            DistantBus(process, self.namespaces), clock, REGIONS, self.delay_seconds
        )
        producer = Producer(journal, delivery, QUEUE)  # type: ignore[arg-type]
        self.starts += 1
        owner = Owner(process.region, f"{process.name}/{self.starts}")
        return assemble(
            journal,  # type: ignore[arg-type]
            delivery,
            clock,
            owner,
            self.handlers,
            producer,
            self.policy,
        )

    async def run_host(self, name: str, region: str) -> None:
        """A host that is started again whenever it dies."""
        while True:
            process = self.new_process(name, region)
            host = Host(process, self.services(process), self.namespaces[region], self.journal)
            self.hosts[name] = host
            host.start()
            while not process.is_dead:
                await asyncio.sleep(1.0)
            await asyncio.sleep(self.chance.delay(RESTART_SECONDS_MAX))

    async def publish(self, publications: list[Publication]) -> None:
        """One sender: publishes in order, and sends the same again until it is done."""
        for publication in publications:
            await asyncio.sleep(self.chance.delay(4.0))
            while not await self.published(publication):
                await asyncio.sleep(self.chance.delay(3.0))

    async def published(self, publication: Publication) -> bool:
        """Publish as a process that may die on the way; whether it was told that all is safe."""
        process = self.new_process(f"sender of {publication.session}", REGIONS[0])
        told: list[bool] = []

        async def attempt() -> None:
            producer = self.services(process).producer
            options = ProducerOptions(publication.group)
            try:
                await producer.publish(publication.session, publication.drafts, options)
            except CallerError:
                raise
            except LockstepError:
                return
            told.append(True)

        await process.start(attempt())
        return bool(told)

    async def operate(self) -> None:
        """A person who runs every fault again; an outage is no reason to skip a message."""
        decision = Decision(Action.RETRY, "operator", "the weather")
        while True:
            await asyncio.sleep(OPERATOR_SECONDS)
            process = self.new_process("operator", REGIONS[0])
            for session in self.halted():
                await process.start(self.resolve(process, session, decision))

    async def resolve(self, process: Process, session: str, decision: Decision) -> None:
        """Resolve one fault, or leave it for the next time."""
        with suppress(LockstepError):
            await self.services(process).resolver.resolve(session, decision)

    def halted(self) -> list[str]:
        """Sessions that wait for a person."""
        heads = {session: self.journal.newest(session) for session in self.journal.partitions}
        return [session for session, head in heads.items() if head and head.halt]

    async def send_plain(self, workload: Workload) -> None:
        """A sender without numbers: puts copies into both regions, again until each has it."""
        for message in workload.plain:
            await asyncio.sleep(self.chance.delay(4.0))
            for region, delay in zip(REGIONS, (0.0, self.delay_seconds), strict=True):
                while self.namespaces[region].is_down(now()):
                    await asyncio.sleep(1.0)
                self.namespaces[region].accept(QUEUE, [message], now() + delay)

    async def run(self, workload: Workload) -> None:
        """Send everything, and wait until all is at rest; raises TimeoutError if it never is."""
        hosts = [
            asyncio.create_task(self.run_host(f"{region}-{n}", region))
            for region in REGIONS
            for n in range(HOSTS_PER_REGION)
        ]
        hosts.append(asyncio.create_task(self.operate()))
        lines: dict[tuple[str, str], list[Publication]] = {}
        for publication in workload.publications:
            lines.setdefault((publication.session, publication.group), []).append(publication)
        try:
            await asyncio.gather(
                self.send_plain(workload), *(self.publish(line) for line in lines.values())
            )
            await self.rest()
        finally:
            for host in self.hosts.values():
                host.process.die()
            for task in hosts:
                task.cancel()
            await asyncio.gather(*hosts, return_exceptions=True)

    async def rest(self) -> None:
        """Wait until nothing is left to do and nothing goes wrong any more."""
        await asyncio.sleep(max(0.0, self.climate.fair_after - now()))
        give_up_at = now() + REST_SECONDS_MAX
        while self.unrest():
            if now() > give_up_at:
                raise TimeoutError(", ".join(self.unrest()))
            await asyncio.sleep(5.0)

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
        return queued + flagged

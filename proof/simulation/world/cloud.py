"""The services of the platform: the store, brokers, change feeds, task hubs and processes."""

from collections import defaultdict

from proof.simulation.world.broker import Namespace
from proof.simulation.world.faults import FaultInjector, FaultProfile, SeededRandom
from proof.simulation.world.host import QUEUES, ChangeFeed
from proof.simulation.world.process import Process, ProcessClock, RemoteBus, RemoteJournal
from proof.simulation.world.recorder import (
    Identity,
    Observations,
    RecordingJournal,
    record_asked,
)
from proof.simulation.world.task_hub import TaskHub
from proof.simulation.world.variant import Variant
from shared.domain.handler import Handlers
from shared.domain.journal import Owner
from shared.domain.message import Message
from shared.domain.saga.record import kinds_of
from shared.engine.build import Services, build
from shared.engine.dispatch.deliver import Delivery
from shared.engine.publish.publish import Producer
from shared.storage.journal import Journal

# Two regions: a third one adds interleavings of the same kinds, and every seed would find fewer.
REGIONS = ("east", "west")


class Cloud:
    """Both regions' services, for all processes; task hubs only if handlers have kinds of sagas."""

    def __init__(
        self, rng: SeededRandom, profile: FaultProfile, variant: Variant, handlers: Handlers
    ) -> None:
        self.rng = rng
        self.variant = variant
        self.handlers = handlers
        self.policy = variant.policy
        self.injector = FaultInjector(profile, rng)
        self.observed = Observations()
        self.journal = RecordingJournal()
        self.journal.fail_over = self.injector.draw_outage(
            profile.failovers, "write region fails over", "store"
        )
        self.namespaces = {region: self.new_namespace(region) for region in REGIONS}
        # The write region is silent as often as it refuses, and may take its namespace along.
        how = rng.stream("how the write region is lost")
        is_silent, takes_namespace = how.random() < 0.5, how.random() < 0.5
        self.journal.silent = how if is_silent else None
        if self.journal.fail_over is not None and takes_namespace:
            lost = self.namespaces[REGIONS[0]]
            lost.signal.down, lost.is_silent = self.journal.fail_over, is_silent
        # A key that was turned, or a role that is late: the store refuses everything in a region.
        self.without_rights = {
            region: self.injector.draw_outage(profile.lost_rights, "store forbidden", region)
            for region in REGIONS
        }
        self.feeds = {r: ChangeFeed(r, self.journal.store, self.injector) for r in REGIONS}
        self.hubs: dict[str, TaskHub] = self.new_hubs() if kinds_of(handlers) else {}
        self.saga_feeds = {r: ChangeFeed(r, self.journal.store, self.injector) for r in self.hubs}
        self.asked: dict[Identity, list[Message]] = defaultdict(list)
        self.workers = 0

    def new_namespace(self, region: str) -> Namespace:
        """Make a namespace, perhaps with a time when it is down or silent, or refuses one queue."""
        injector, profile = self.injector, self.injector.profile
        down = injector.draw_outage(profile.outages, "namespace down", region)
        silent = injector.draw_outage(profile.silences, "namespace silent", region)
        queue = self.rng.pick((QUEUES.here, QUEUES.outputs, QUEUES.errors))
        refusing = injector.draw_outage(profile.refusals, f"queue {queue} refuses", region)
        return Namespace(
            region,
            injector,
            silent or down,
            is_silent=silent is not None,
            refusing={queue: refusing} if refusing else {},
        )

    def new_hubs(self) -> dict[str, TaskHub]:
        """Make a task hub for each region; one of them may lose everything."""
        injector, profile = self.injector, self.injector.profile
        lost = injector.draw_outage(profile.hub_losses, "task hub lost", "a task hub")
        losing = self.rng.pick(REGIONS)
        return {
            region: TaskHub(
                region,
                injector,
                injector.draw_outage(profile.hub_outages, "task hub down", region),
                lost_at=lost[0] if lost and region == losing else None,
                begins_again=self.rng.delay(1.0) < 0.5,
            )
            for region in REGIONS
        }

    def new_process(self, name: str, region: str) -> Process:
        skew = (self.rng.delay(2.0) - 1.0) * self.injector.profile.skew_seconds
        return Process(name, region, self.injector, skew)

    def delivery(self, process: Process) -> Delivery:
        bus, clock = RemoteBus(process, self.namespaces), ProcessClock(process)
        seconds, affinity = self.variant.delay_seconds, self.variant.affinity
        return Delivery(bus, clock, REGIONS, seconds, QUEUES, affinity=affinity)

    def journal_of(self, process: Process) -> Journal:
        """Return the journal as a process reaches it."""
        far = self.variant.write_seconds
        forbidden = self.without_rights[process.region]
        return RemoteJournal(process, self.journal, far, forbidden)

    def producer(self, process: Process) -> Producer:
        return Producer(self.journal_of(process), self.delivery(process))

    def services(self, process: Process, *, is_only_worker: bool = False) -> Services:
        """Return the parts of a new worker, named `host/number` where its host has only one."""
        self.workers += 1
        instance = f"{process.name}{'/' if is_only_worker else '-'}{self.workers}"
        services = build(
            self.journal_of(process),
            self.delivery(process),
            ProcessClock(process),
            Owner(process.region, instance),
            self.handlers,
            self.producer(process),
            self.policy,
        )
        record_asked(services.consumer, self.asked)
        return services

"""`python -m proof.demo.sagas`: orders as sagas on one machine, through the outage of a region."""

import shutil
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

from rich.console import Console

from cli.running import run_program
from local.testing.cloud import CloudProcess
from proof.demo.loss import MOVED_AFTER_SECONDS
from proof.demo.sagas.checker import SagaJournals
from proof.demo.sagas.orders import OrderClient, PlacedOrder, make_orders
from proof.demo.sagas.report import LEASE_SECONDS, SagaReport
from proof.demo.waiting import LOOK_SECONDS, Movement, RunStalled, read_queued
from proof.testbed.cloud import running_cloud
from proof.testbed.command import exit_status, make_parser, parse_positive, resolve_path
from proof.testbed.faults import region_down, run_in_background
from proof.testbed.journal import read_work
from proof.testbed.sampling import CloudSample, take_sample, tell

THREADS = 24
NOTE_SECONDS = 5.0
KILLED_AFTER, BACK_AFTER = 0.4, 0.8

DESCRIPTION = """\
Places orders over scarce stock in two regions, approves, rejects, cancels or forgets some of them,
loses a region half-way, with the journal's write region, brings it back, and checks the journals
against each other: every order completed or fully compensated, stock and money conserved, nothing
pending. The journal's writes move to the other region 5 s after the loss, which the run does by
itself; in Azure it takes minutes. Exit status: 0 every promise held, 1 one was broken, 2 the run
could not be done, 4 not finished: nothing moved any more for three minutes, and what was done broke
no promise, 130 interrupted."""


@dataclass(frozen=True, slots=True)
class SagaOptions:
    data: Path
    orders: int
    rate: float
    seed: int
    kills: bool


@dataclass
class SagaRun:
    """Places orders and decides them; `outage` is when the primary was lost and came back."""

    cloud: CloudProcess
    options: SagaOptions
    outage: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.client = OrderClient(self.cloud.contract["hosts"])
        self.regions = self.cloud.regions
        self.faults = ExitStack()
        self.losing: Future[None]

    def send(self, orders: list[PlacedOrder]) -> None:
        kill_at, restore_at = (int(len(orders) * part) for part in (KILLED_AFTER, BACK_AFTER))
        changes = {kill_at: self.kill, restore_at: self.restore}
        began = time.monotonic()
        with ThreadPoolExecutor(THREADS) as threads:
            sent: list[Future[None]] = []
            for number, order in enumerate(orders):
                if number in changes and self.options.kills:
                    changes[number]()
                time.sleep(max(0.0, began + number / self.options.rate - time.monotonic()))
                sent.append(threads.submit(self.place, order, number))
            for one in sent:
                one.result()

    def place(self, order: PlacedOrder, number: int) -> None:
        """Place an order in one region, and send to the other what a person decides."""
        self.client.place(order, self.regions[number % 2])
        if order.decision:
            time.sleep(order.decided_after)
            self.client.decide(order, self.regions[(number + 1) % 2])

    def kill(self) -> None:
        """Lose all of the primary, its task hub and the journal's write region with it."""
        primary, secondary = self.regions
        lost = region_down(
            self.cloud.control,
            primary,
            f"durable.{primary}",
            away=secondary,
            wait=partial(time.sleep, MOVED_AFTER_SECONDS),
        )
        # In the background, because orders are placed while the writes wait to be moved.
        self.losing = run_in_background(lambda: self.faults.enter_context(lost))
        self.outage.append(time.time())
        open_sagas = self.client.count_open_sagas(secondary)
        tell(f"{primary} LOST, with {open_sagas} sagas under way")

    def restore(self) -> None:
        self.losing.result()
        self.faults.close()
        self.outage.append(time.time())
        tell(f"{self.regions[0]} is BACK, with everything it had under way")

    def finish(self) -> str:
        """Wait until nothing is left to do, as long as anything moves; returns what stood still."""
        movement, note_at = Movement(), 0.0
        idle: CloudSample | None = None
        while True:
            left, sample = self.count_left()
            if not any(left.values()):
                # What went from one place to another while these were looked at was missed in both,
                # and has been settled since.
                if idle is not None and idle.regions == sample.regions:
                    return ""
                idle = sample
            else:
                idle = None
                if time.monotonic() >= note_at:
                    tell("left: " + ", ".join(f"{n} {what}" for what, n in left.items() if n))
                    note_at = time.monotonic() + NOTE_SECONDS
            movement.see("what is left", left)
            movement.see("the regions", sample.regions)
            try:
                movement.require("the last sagas and deliveries")
            except RunStalled as stalled:
                return str(stalled)
            time.sleep(LOOK_SECONDS)

    def count_left(self) -> tuple[dict[str, int], CloudSample]:
        """Count what is left to do: sagas, what the journal has to deliver, messages in queues."""
        left = {f"open sagas in {r}": self.client.count_open_sagas(r) for r in self.regions}
        work = read_work(self.cloud)
        # Without an answer nothing is known, so it is not taken to be done.
        left["pending in the journal"] = 1 if work is None else work.pending + work.waiting
        sample = take_sample(self.cloud.control, self.cloud.queue)
        queued = sum(one.outstanding + one.dead for one in sample.regions.values())
        return left | {"messages in queues": queued}, sample


def run(options: SagaOptions) -> int:
    """Run the demo; returns its exit status."""
    started_at = time.time()
    logs = options.data / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    settings = {"LOCKSTEP_LEASE_SECONDS": str(LEASE_SECONDS)}
    with running_cloud(logs=logs, settings=settings) as cloud:
        tell("two regions are up; stocking up")
        saga_run = SagaRun(cloud, options)
        saga_run.client.stock_up()
        tell(f"{options.orders} orders at {options.rate:g} a second, from both regions")
        saga_run.send(make_orders(options.orders, options.seed))
        tell("all orders are placed; waiting for the last sagas")
        if stopped := saga_run.finish():
            tell(f"giving up: {stopped}")
        # The queues before the journal: a message goes from there to here, and so is not missed.
        queued = [*chain(*read_queued(cloud).values())]
        with cloud.open_container() as container:
            documents = container.read_all_items()
            journals = SagaJournals.of(documents, queued, is_over=not stopped)
        primary = cloud.regions[0]
        outage = (saga_run.outage[0], saga_run.outage[1]) if len(saga_run.outage) == 2 else None
        results = journals.check(options.orders, primary if options.kills else None)
    report = SagaReport(results, journals.read_sagas(), outage, primary, started_at, stopped)
    path = options.data / "report.html"
    report.page.write(path)
    report.page.print(Console(highlight=False), path)
    return report.exit_status()


def main(words: Sequence[str]) -> int:
    options = parse_options(words)
    return exit_status("python -m proof.demo.sagas", lambda: run(options))


def parse_options(words: Sequence[str]) -> SagaOptions:
    parser = make_parser("proof.demo.sagas", DESCRIPTION)
    add, add_number = parser.add_argument, partial(parser.add_argument, metavar="N")
    add("--data", type=resolve_path, default=".demo-sagas", metavar="DIR")
    add_number("--orders", type=int, default=200, help="default: 200")
    add_number("--rate", type=parse_positive, default=6.0, help="orders a second: 6")
    add_number("--seed", type=int, default=1, help="of the orders: 1")
    add("--no-kill", dest="kills", action="store_false", help="let both regions live")
    return SagaOptions(**vars(parser.parse_args(words)))


if __name__ == "__main__":
    run_program(main)

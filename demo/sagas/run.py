"""One run: orders in both regions, one of them killed in the middle, a verdict from the books."""

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from demo.journal import journal_container
from demo.sagas.books import Books, Document
from demo.sagas.orders import PlacedOrder, placed_orders
from demo.sagas.regions import REGIONS, Regions, regions
from demo.sagas.report import Report
from demo.sagas.shop import Shop
from demo.stack import Stack

THREADS = 24
END_SECONDS_MAX = 180.0
KILLED_AFTER, BACK_AFTER = 0.4, 0.8


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asks for."""

    data: Path
    orders: int
    rate: float
    seed: int
    kills: bool


@dataclass
class Course:
    """How a run goes: who is told what, and when a region was gone."""

    both: Regions
    options: Options
    outage: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shop = Shop(self.both)
        self.region = REGIONS[0]

    def send(self, orders: list[PlacedOrder]) -> None:
        """Place all orders at the rate, and let each be decided when its time has come."""
        turns = {
            int(len(orders) * KILLED_AFTER): self.kill,
            int(len(orders) * BACK_AFTER): self.revive,
        }
        began = time.monotonic()
        with ThreadPoolExecutor(THREADS) as threads:
            sent: list[Future[None]] = []
            for number, order in enumerate(orders):
                if number in turns and self.options.kills:
                    turns[number]()
                time.sleep(max(0.0, began + number / self.options.rate - time.monotonic()))
                sent.append(threads.submit(self.place, order, number))
            for one in sent:
                one.result()

    def place(self, order: PlacedOrder, number: int) -> None:
        """Place an order in one region, and say in the other what a person decides."""
        self.shop.place(order, REGIONS[number % 2])
        if order.says:
            time.sleep(order.says_after)
            self.shop.say(order, REGIONS[(number + 1) % 2])

    def kill(self) -> None:
        """Kill a region's host."""
        self.both.kill(self.region)
        self.outage.append(time.time())
        tell(f"{self.region} KILLED, with {self.shop.open_sagas('west')} sagas under way")

    def revive(self) -> None:
        """Start the killed region's host again, on the task hub it left."""
        self.both.start(self.region)
        self.outage.append(time.time())
        tell(f"{self.region} is BACK, with everything it had under way")

    def finish(self) -> None:
        """Wait until neither region has a saga that is not over."""
        for region in REGIONS:
            self.shop.until(partial(self.is_done, region), END_SECONDS_MAX)

    def is_done(self, region: str) -> bool:
        """Whether a region's task hub has no saga left that is not over."""
        return not self.shop.open_sagas(region)


def run(options: Options) -> int:
    """Run the demo; the answer is the exit status: 0 when every promise held, else 1."""
    with data_directory(options.data) as data, regions(data / "logs") as both:
        tell("two regions are up; stocking up")
        course = Course(both, options)
        course.shop.stock_up()
        tell(f"{options.orders} orders at {options.rate:g} a second, from both regions")
        course.send(placed_orders(options.orders, options.seed))
        tell("all orders are placed; waiting for the last sagas")
        course.finish()
        books = Books.of(documents(both.stack))
        outage = (course.outage[0], course.outage[1]) if len(course.outage) == 2 else None
        killed = course.region if options.kills else None
        report = Report(books.verdict(options.orders, killed), books.sagas(), outage, course.region)
    report.write(options.data / "report.html")
    for line in report.lines():
        print(line)  # noqa: T201 - what the command says
    tell(f"picture: {options.data / 'report.html'}")
    return 1 if report.is_broken else 0


@contextmanager
def data_directory(data: Path) -> Iterator[Path]:
    """A directory for logs and report; those of an earlier run are removed."""
    shutil.rmtree(data / "logs", ignore_errors=True)
    data.mkdir(parents=True, exist_ok=True)
    yield data


def documents(stack: Stack) -> list[Document]:
    """Every document of the journal, read with the plain Azure SDK."""
    with journal_container(stack) as container:
        return list(container.read_all_items())


def tell(text: str) -> None:
    """Say what happens, with the time of day."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)  # noqa: T201 - what the command says

"""The programs that pages show run, as somebody who copies them would run them."""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import pytest

from shared.engine.publish.publish import Producer
from shared.settings import Settings
from shared.testkit import Report, exercise, given
from tests.docs.pages import page
from tests.world import World

SETTINGS = {
    "LOCKSTEP_REGION": "east",
    "LOCKSTEP_REGIONS": "east,west",
    "ServiceBus_east": "Endpoint=sb://nowhere/",
    "ServiceBus_west": "Endpoint=sb://nowhere/",
    "Cosmos": "AccountEndpoint=http://nowhere/;AccountKey=bm90aGluZw==;",
}
type OwnModule = Callable[[str], ModuleType]


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnModule]:
    """The programs of a page as one module, which other processes can import."""

    def write(name: str) -> ModuleType:
        (tmp_path / "of_the_page.py").write_text("\n".join(page(name).programs()))
        monkeypatch.syspath_prepend(tmp_path)
        return __import__("of_the_page")

    yield write
    sys.modules.pop("of_the_page", None)


def test_the_handler_and_the_test_of_the_readme() -> None:
    names = page("README.md").run()

    tests = [names[name] for name in names if name.startswith("test_")]
    assert tests
    for test in tests:
        test()


async def test_the_producers_of_the_page_about_publishing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    @asynccontextmanager
    async def opened(_: Settings) -> AsyncIterator[Producer]:
        yield world.producer()

    monkeypatch.setattr("shared.publishing.opening.open_producer", opened)
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    names = page("docs/publishing.md").run()

    assert await names["publish"]() == 0
    assert names["publish_blocking"]() == 2
    bodies = [m.body for m in world.bus.messages("east", "in")]
    assert bodies == [b'{"amount":5}', b'{"amount":7}', b'{"amount":9}']


@pytest.mark.slow
def test_the_handlers_of_the_page_keep_what_their_kinds_promise(
    own_module: OwnModule, capsys: pytest.CaptureFixture[str]
) -> None:
    report: Report = exercise(
        own_module("docs/handlers.md").handlers,
        [
            given("order:1", "order.place", {"amount": 700}),
            given("order:1", "order.place", {"amount": 700}),
            given("order:1", "order.offer", {}),
            given("order:1", "order.reserve", {}),
            given("order:1", "order.pay", {}),
        ],
    )

    placed = report.outputs("order.placed")
    assert [one["total"] for one in placed] == [700, 1400]
    assert placed[0]["number"] == placed[1]["number"] == report.state("order:1")["number"]
    assert len(report.outputs("offer.made")) in (1, 10)
    assert report.outputs("order.release") == [{}]
    assert "customer ordered at " in capsys.readouterr().out


@pytest.mark.slow
def test_the_tests_of_the_page_about_testing_pass_and_find_what_is_wrong(
    own_module: OwnModule,
) -> None:
    module = own_module("docs/testing.md")

    tests = [one for name, one in vars(module).items() if name.startswith("test_")]
    for one in tests:
        one()
    with pytest.raises(AssertionError, match="becomes a fault"):
        exercise(module.handlers, [given("apples", "stock.ship", {"quantity": 1})])
    assert len(tests) == 4

"""The programs that pages show run, as somebody who copies them would run them."""

import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from shared.backtest.__main__ import main as backtest
from shared.backtest.app import load_app
from shared.engine.publish.publish import Producer
from shared.settings import Settings
from shared.testkit import Report, exercise, given
from shared.testkit.given import as_sent
from shared.testkit.memory_store import EPOCH_SECONDS
from tests.docs.pages import page
from tests.world import POLICY, World, take

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


async def test_the_example_of_the_page_about_backtests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = page("docs/backtest.md").section("An example")
    (program,) = shown.programs()
    removed, added = (
        next(line[1:] for line in shown.programs("diff")[0].splitlines() if line[0] == sign)
        for sign in "-+"
    )
    app, file, budget = tmp_path / "savings", tmp_path / "kept.jsonl", tmp_path / "budget.json"
    (app / "handlers").mkdir(parents=True)
    for name in ("function_app.py", "handlers/__init__.py"):
        (app / name).touch()
    module = app / "handlers/savings.py"
    module.write_text(program)
    monkeypatch.setattr(sys, "path", [*sys.path])
    world = World(policy=replace(POLICY, keeps_inputs=True), handlers=load_app(app))
    for session, cents in (("savings:a", 100_00), ("savings:b", 1_40), ("savings:c", 50_00)):
        bodies = {"savings.deposit": {"cents": cents}, "savings.interest": {"basis_points": 250}}
        given_ones = [given(session, kind, body) for kind, body in bodies.items()]
        await take(world.east, *as_sent(given_ones))
        entries = [{**one, "_ts": EPOCH_SECONDS} for one in world.entries(session)]
        with file.open("a") as lines:
            lines.writelines(f"{json.dumps(entry)}\n" for entry in entries)

    assert backtest([str(file), "--app", str(app)]) == 0
    capsys.readouterr()
    module.write_text(program.replace(removed, added))
    assert backtest([str(file), "--app", str(app)]) == 1
    assert capsys.readouterr().out == shown.programs("text")[0]
    budget.write_text(shown.programs("json")[0])
    assert backtest([str(file), "--app", str(app), "--expect", str(budget)]) == 0

"""The programs that pages show run, as somebody who copies them would run them."""

import ast
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from local.testing.patience import run_patiently
from shared.backtest.__main__ import main as backtest
from shared.backtest.app import load_app
from shared.engine.publish.publish import Producer
from shared.settings import Settings
from shared.testkit import Report, exercise, given
from shared.testkit.given import as_sent
from shared.testkit.memory_store import EPOCH_SECONDS
from tests.docs.pages import PATHS, ROOT, page
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
@pytest.mark.parametrize(("name", "count"), [("docs/testing.md", 4), ("docs/sagas.md", 3)])
def test_the_tests_of_a_page_pass(name: str, count: int, own_module: OwnModule) -> None:
    tests = [one for name, one in vars(own_module(name)).items() if name.startswith("test_")]

    for one in tests:
        one()
    assert len(tests) == count


@pytest.mark.slow
def test_the_handlers_of_the_page_about_testing_can_fail(own_module: OwnModule) -> None:
    with pytest.raises(AssertionError, match="becomes a fault"):
        exercise(
            own_module("docs/testing.md").handlers,
            [given("apples", "stock.ship", {"quantity": 1})],
        )


def test_the_programs_of_every_page_import_what_they_use(tmp_path: Path) -> None:
    for path in PATHS:
        if programs := page(str(path.relative_to(ROOT))).programs():
            (tmp_path / f"{path.stem}.py").write_text("\n".join(programs))
    # Those about Spark are cells of a notebook, which has `spark`; tests/spark runs them.
    command = ["-m", "ruff", "check", "--isolated", "--select=F401,F821", "--exclude=spark.py"]
    checked = run_patiently([sys.executable, *command, str(tmp_path)], seconds=60, cwd=ROOT)

    assert checked.returncode == 0, checked.stdout
    modules, missing = sorted(tmp_path.glob("*.py")), []
    for tree in (ast.parse(module.read_text()) for module in modules):
        for one in (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)):
            # The handlers that a reader writes are not here.
            if one.module and not one.module.startswith("handlers"):
                there = import_module(one.module)
                missing += [name.name for name in one.names if not hasattr(there, name.name)]
    assert modules
    assert missing == []


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

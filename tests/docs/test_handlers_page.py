"""docs/handlers.md and docs/testing.md: their programs run, and their tables are the code's."""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shared.domain.handler import Context, Handlers, Kind
from shared.testkit import Report, exercise, given
from tests.docs.reference_page import DOCS, rows

HANDLERS_PAGE, TESTING_PAGE = DOCS / "handlers.md", DOCS / "testing.md"


def programs(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.+?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Programs of a page as one module, which other processes can import."""

    def write(page: Path) -> ModuleType:
        (tmp_path / "of_the_page.py").write_text("\n".join(programs(page)))
        monkeypatch.syspath_prepend(tmp_path)
        return __import__("of_the_page")

    yield write
    sys.modules.pop("of_the_page", None)


@pytest.mark.slow
def test_the_handlers_of_the_page_keep_what_their_kinds_promise(
    own_module: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    handlers = own_module(HANDLERS_PAGE).handlers

    report: Report = exercise(
        handlers,
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
def test_the_tests_of_the_page_pass_and_find_what_is_wrong(own_module: Any) -> None:
    module = own_module(TESTING_PAGE)

    tests = [one for name, one in vars(module).items() if name.startswith("test_")]
    for one in tests:
        one()
    with pytest.raises(AssertionError, match="becomes a fault"):
        exercise(module.handlers, [given("apples", "stock.ship", {"quantity": 1})])

    assert len(tests) == 3


def test_the_tables_name_every_argument_with_its_default() -> None:
    register = inspect.signature(Handlers.register).parameters
    on_page = rows("What `register` takes", HANDLERS_PAGE)

    assert set(on_page) == set(register) - {"self"}
    for name, cells in on_page.items():
        default = register[name].default
        assert cells[0] == {
            inspect.Parameter.empty: "required",
            (): "any",
        }.get(default, f"`{getattr(default, '__name__', default_text(default))}`")


def default_text(default: Any) -> str:
    """How the page writes a default: a member of an enumeration with its class."""
    name = getattr(default, "name", None)
    return f"{type(default).__name__}.{name}" if name else str(default)


def test_the_tables_name_every_kind_and_what_a_context_gives() -> None:
    named = {re.split(r"\W", name)[0] for name in rows("What a `Context` gives", HANDLERS_PAGE)}
    public = {name for name in vars(Context) if not name.startswith("_")}

    assert set(rows("Kinds", HANDLERS_PAGE)) == {kind.name for kind in Kind}
    assert named == public | {"message"}


def test_the_table_of_exercise_names_every_argument_with_its_default() -> None:
    found = inspect.signature(exercise).parameters
    documented = {
        argument: cells[0]
        for names, cells in rows("`exercise`", TESTING_PAGE).items()
        for argument in re.findall(r"\w+", names)
    }

    assert documented == {
        name: "required" if one.default is inspect.Parameter.empty else f"`{one.default}`"
        for name, one in found.items()
    }

"""An app is made from handlers, which are found in a package; what it needs follows from them."""

import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from functions.app import DURABLE_BINDINGS, build_app
from functions.handlers import orders
from functions.page.find import show_found
from functions.page.overview import show_overview
from functions.page.view import adapt_pages
from shared.domain.handler import Handlers
from shared.engine.handle.find import find_handlers
from tests.asking import ask
from tests.world import World, handlers

COUNTING = """
from pydantic import BaseModel
from shared.domain.handler import Handlers

class {state}(BaseModel):
    n: int = 0

handlers = Handlers()

@handlers.register("{type}", state={state}, body={state})
def count(state, body, context):
    return state
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty package `found`, which no later test sees."""
    folder = tmp_path / "found"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "found"]:
        del sys.modules[name]


def test_every_module_of_a_package_is_found_and_one_with_an_underscore_is_not(
    package: Path,
) -> None:
    (package / "one.py").write_text(COUNTING.format(state="One", type="one.count"))
    (package / "two.py").write_text(COUNTING.format(state="Two", type="two.count"))
    (package / "_shared.py").write_text("raise AssertionError('this is not imported')")

    assert sorted(find_handlers("found").by_type) == ["one.count", "two.count"]


def test_a_module_that_needs_the_settings_makes_its_handlers_from_them(package: Path) -> None:
    source = COUNTING.format(state="One", type="one.count").replace("one.count", "{}")
    lines = ["    " + line for line in source.replace('"{}"', "settings.kind").splitlines()]
    module = ["def connect_handlers(settings):", *lines, "    return handlers"]
    (package / "one.py").write_text("\n".join(module))

    assert list(find_handlers("found", SimpleNamespace(kind="mine")).by_type) == ["mine"]


@pytest.mark.parametrize(
    ("modules", "error", "named"),
    [
        ({"notes": "handler = None"}, ValueError, r"^found\.notes has no `handlers`"),
        ({"broken": "import no_such_module"}, ModuleNotFoundError, "no_such_module"),
        (
            {name: COUNTING.format(state="One", type="count") for name in ("one", "two")},
            ValueError,
            r"^found\.two: two handlers for 'count'$",
        ),
    ],
    ids=["without handlers", "cannot be imported", "two of one type"],
)
def test_a_module_that_cannot_be_used_is_named_and_not_passed_over(
    package: Path, modules: dict[str, str], error: type[Exception], named: str
) -> None:
    for name, source in modules.items():
        (package / f"{name}.py").write_text(source)

    with pytest.raises(error, match=named):
        find_handlers("found")


def describe_functions(handlers: Handlers) -> dict[str, set[str]]:
    """The types of the bindings of each function of an app, by its name."""
    found: list[Any] = build_app(World(handlers=handlers).east).get_functions()
    return {one.get_function_name(): {b.type for b in one.get_bindings()} for one in found}


async def test_an_app_without_sagas_has_nothing_that_needs_durable_functions() -> None:
    without, whole = describe_functions(handlers), describe_functions(orders.handlers)

    assert {name for name, types in without.items() if types & DURABLE_BINDINGS} == set()
    of_sagas = whole.keys() - without.keys()
    assert of_sagas == {name for name in whole if "saga" in name}
    bound = {name for name, types in whole.items() if types & DURABLE_BINDINGS}
    assert of_sagas | {"sweep"} >= bound
    assert without == {
        # The sweep of an app that has sagas drives them on.
        name: whole[name] - ({"durableClient"} if name == "sweep" else set())
        for name in whole.keys() - of_sagas
    }


@pytest.mark.parametrize(
    ("handlers", "shown"), [(handlers, False), (orders.handlers, True)], ids=["without", "with"]
)
async def test_the_page_speaks_of_sagas_where_the_app_has_some(
    handlers: Handlers, shown: bool
) -> None:
    world = World(handlers=handlers)
    build_app(world.east)
    try:
        page = await show_overview(world.east, ask(method="GET", path="/operate"))
        find = await show_found(world.east, ask(method="GET", path="/operate/find"))
    finally:
        adapt_pages("", has_sagas=True)

    assert (page.status_code, find.status_code) == (200, 200)
    assert (b"/operate/sagas" in page.get_body()) == shown
    for body in (page.get_body(), find.get_body()):
        assert (b"saga" in re.sub(b"<style>.*</style>", b"", body, flags=re.DOTALL)) == shown


@pytest.mark.parametrize(
    ("root_level", "own_level", "expected"),
    [
        (logging.INFO, logging.NOTSET, logging.WARNING),
        (logging.INFO, logging.INFO, logging.INFO),
        (logging.DEBUG, logging.NOTSET, logging.DEBUG),
    ],
    ids=["by default", "its level is set", "debugging is asked for"],
)
def test_a_request_of_an_azure_sdk_is_not_logged_unless_asked_for(
    root_level: int, own_level: int, expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(root_level)
    caplog.set_level(own_level, "azure")
    caplog.set_level(logging.NOTSET, "azure.cosmos")

    build_app(World(handlers=orders.handlers).east)

    request_log = logging.getLogger("azure.core.pipeline.policies.http_logging_policy")
    assert request_log.getEffectiveLevel() == expected
    is_held = expected == logging.WARNING
    regions_log = logging.getLogger("azure.cosmos.LocationCache")
    assert regions_log.getEffectiveLevel() == (logging.ERROR if is_held else expected)

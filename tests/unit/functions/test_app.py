"""Handlers are found in a package: all of them, and what is none is named."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from functions.app import build_app
from shared.domain.handler import Handlers
from shared.engine.handle.find import find_handlers
from tests.world import World

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

    build_app(World(handlers=Handlers()).east)

    request_log = logging.getLogger("azure.core.pipeline.policies.http_logging_policy")
    assert request_log.getEffectiveLevel() == expected
    is_held = expected == logging.WARNING
    regions_log = logging.getLogger("azure.cosmos.LocationCache")
    assert regions_log.getEffectiveLevel() == (logging.ERROR if is_held else expected)

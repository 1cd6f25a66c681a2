"""Handlers are found in a package: all of them, and what is none is named."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from functions.app import build_app, find_handlers
from shared.domain.handler import Handlers
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


def test_a_module_without_handlers_is_named(package: Path) -> None:
    (package / "notes.py").write_text("handler = None")

    with pytest.raises(ValueError, match=r"^found\.notes has no `handlers`"):
        find_handlers("found")


def test_of_two_modules_with_one_type_the_second_is_named(package: Path) -> None:
    for name in ("one", "two"):
        (package / f"{name}.py").write_text(COUNTING.format(state=name.title(), type="count"))

    with pytest.raises(ValueError, match=r"^found\.two: two handlers for 'count'$"):
        find_handlers("found")


def test_a_module_that_cannot_be_imported_is_not_passed_over(package: Path) -> None:
    (package / "broken.py").write_text("import no_such_module")

    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
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
    root_level: int, own_level: int, expected: int
) -> None:
    root, sdks = logging.getLogger(), logging.getLogger("azure")
    before = root.level, sdks.level
    try:
        root.setLevel(root_level)
        sdks.setLevel(own_level)
        build_app(World(handlers=Handlers()).east)
        request_log = logging.getLogger("azure.core.pipeline.policies.http_logging_policy")
        assert request_log.getEffectiveLevel() == expected
    finally:
        root.setLevel(before[0])
        sdks.setLevel(before[1])

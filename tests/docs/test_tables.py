"""Tables that people write have a row for each thing that the code has, and no other."""

import inspect
import re

import pytest

from cli import failures
from cli.__main__ import app, new
from cli.sagas import saga
from shared.domain import errors
from shared.domain.handler import Context, Handlers, Kind
from shared.testkit import exercise
from tests.docs.pages import page
from tests.unit.functions.test_access import RIGHTS

HANDLERS = page("docs/handlers.md")
CLI = page("docs/cli.md")


def defaults_of(function: object) -> dict[str, str]:
    """How a page writes the default of each argument; a member of an enumeration has its class."""
    assert callable(function)
    parameters = inspect.signature(function).parameters.values()
    return {one.name: default_text(one.default) for one in parameters if one.name != "self"}


def default_text(default: object) -> str:
    if default is inspect.Parameter.empty:
        return "required"
    if default == ():
        return "any"
    name = getattr(default, "name", None)
    whole = f"{type(default).__name__}.{name}" if name else str(default)
    return f"`{getattr(default, '__name__', whole)}`"


def test_every_argument_of_register_and_of_exercise_with_its_default() -> None:
    assert HANDLERS.table("argument").column() == defaults_of(Handlers.register)
    assert page("docs/testing.md").table("of `exercise`").column() == defaults_of(exercise)


def test_every_kind_of_handler_and_what_a_context_gives() -> None:
    named = HANDLERS.section("What a `Context` gives").table("name").names()
    public = {name for name in vars(Context) if not name.startswith("_")}

    assert HANDLERS.table("kind").names() == {kind.name for kind in Kind}
    assert {re.split(r"\W", one)[0] for one in named} == public | {"message"}


def test_every_command_and_every_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    groups = {"new": new, "saga": saga}
    added = {f"{name} {o.name}" for name, of in groups.items() for o in of.registered_commands}
    known = {
        *(failures.DONE, failures.REFUSED, failures.MISUSED),
        *(failures.NO_ANSWER, failures.INTERRUPTED),
    }

    commands = CLI.table("command").names()
    # What a command takes stands behind it in capitals, or as an option.
    named = {re.split(r" (?=[A-Z\[-])", one)[0] for one in commands}
    assert named == {one.name for one in app.registered_commands} | added
    assert {int(status) for status in CLI.table("exit status").names()} == known
    assert all(f"{status} " in failures.EXIT_STATUSES for status in known)


def test_every_right_with_its_functions() -> None:
    rights = page("docs/security.md").table("right, and app role")

    assert {right: set(functions.strip("`").split("`, `")) for right, functions in rights.rows} == {
        f"`{right.value}`": names for right, names in RIGHTS.items()
    }


def test_every_error_is_in_the_tree_above_them() -> None:
    classes = [one for one in vars(errors).values() if inspect.isclass(one)]

    drawn = re.findall(r"\w+", errors.__doc__ or "")
    assert [one.__name__ for one in classes if one.__name__ not in drawn] == []

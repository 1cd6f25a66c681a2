"""An exception of a team's code is told safely, and where it came from, within bounds."""

import asyncio
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

from shared.domain.errors import InvalidBody
from shared.engine.handle.raised import (
    EXCEPTIONS_MAX,
    FRAMES_MAX,
    NAME_CHARACTERS_MAX,
    HandlerFailed,
    describe_error,
    find_frames,
)

HERE = "tests/unit/shared/test_raised.py"


def caught(raising: Any, *given: Any) -> BaseException:
    """What a function raises."""
    try:
        raising(*given)
    except BaseException as error:
        return error
    raise AssertionError


def functions_in(lines: tuple[str, ...]) -> list[str]:
    return [line.rpartition(".")[2].rpartition(" in ")[2] for line in lines]


def parse(text: str) -> Any:
    return json.loads(text)


def test_frames_are_those_of_the_team_whoever_it_called() -> None:
    lines = find_frames(caught(parse, "{"))

    assert functions_in(lines) == ["caught", "parse"]
    assert lines[-1] == f"{HERE}:{parse.__code__.co_firstlineno + 1} in parse"


def test_without_a_frame_of_the_team_those_of_packages_are_told() -> None:
    error = caught(json.loads, "{")
    # As where the engine calls a function of a package itself.
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next

    assert functions_in(find_frames(error)) == ["loads", "decode", "raw_decode"]


def deep(levels: int) -> None:
    if levels:
        deep(levels - 1)
    else:
        raise ValueError("bottom")


def chained() -> None:
    try:
        parse("{")
    except ValueError as error:
        raise KeyError("outer") from error


def test_what_caused_it_follows_under_its_class() -> None:
    lines = find_frames(caught(chained))

    assert functions_in(lines) == [
        *("caught", "chained", "caused by JSONDecodeError"),
        *("chained", "parse"),
    ]


def test_a_recursion_is_told_by_its_lines_each_once() -> None:
    assert functions_in(find_frames(caught(deep, 500))) == ["caught", "deep", "deep"]


def run_source(source: str, path: Path, name: str) -> BaseException:
    """What the function of this name raises in a file of its own."""
    module = ModuleType("theirs")
    exec(compile(source, str(path), "exec"), vars(module))
    return caught(vars(module)[name])


def test_a_long_way_is_cut_to_its_innermost_frames(tmp_path: Path) -> None:
    steps = [f"def f{n}(): f{n - 1}()" for n in range(1, 30)]
    source = "\n".join(["def f0(): raise ValueError", *steps])

    lines = find_frames(run_source(source, tmp_path / "theirs.py", "f29"))

    assert functions_in(lines) == [f"f{n}" for n in range(FRAMES_MAX - 1, -1, -1)]


def test_a_file_is_named_as_it_is_imported_and_names_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    name = "f" + "x" * 200
    inside = run_source(f"def {name}(): raise ValueError", tmp_path / "a" / "b.py", name)
    outside = run_source("def f(): raise ValueError", Path("/elsewhere/" + "y" * 200 + ".py"), "f")
    forged = run_source("def f(): raise ValueError", Path("/x\nfaulted.py"), "f")

    assert find_frames(inside)[-1] == f"a/b.py:1 in {'x' * NAME_CHARACTERS_MAX}"
    assert find_frames(outside)[-1] == f"{'y' * (NAME_CHARACTERS_MAX - 3)}.py:1 in f"
    assert find_frames(forged)[-1] == "/x\\nfaulted.py:1 in f"


def circle() -> None:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


def large_group() -> None:
    raise ExceptionGroup("many", [ValueError(n) for n in range(100_000)])


def nested_group() -> None:
    group: Exception = ValueError("inner")
    for _ in range(500):
        group = ExceptionGroup("outer", [group, group, group])
    raise group


class Evil(Exception):
    """An exception that raises wherever it is looked at."""

    @property
    def __cause__(self) -> BaseException:  # type: ignore[override]
        """Raise."""
        raise SystemExit

    def __eq__(self, other: object) -> bool:
        """Raise."""
        raise SystemExit

    __hash__ = Exception.__hash__


def evil() -> None:
    raise Evil("x")


@pytest.mark.parametrize("raising", [circle, large_group, nested_group, evil])
def test_no_chain_is_followed_for_ever(raising: Any) -> None:
    failed = HandlerFailed(caught(raising))

    assert str(failed).startswith(f"{failed.name}: ")
    assert len(failed.raised_at) <= FRAMES_MAX + EXCEPTIONS_MAX
    assert all(len(line) < 200 for line in failed.raised_at)


class Refused(BaseModel):
    """A model of the team."""

    amount: int


def test_values_that_a_model_refused_are_told_nowhere() -> None:
    secret = "4111222233334444"
    error = caught(Refused.model_validate, {"amount": f"{secret}-secret"})
    group = BaseExceptionGroup("several", [error])

    for one in (error, group):
        assert "amount: Input should be a valid integer" in describe_error(one)
        assert secret not in describe_error(one) + str(find_frames(one))


def test_an_error_of_lockstep_says_only_what_it_is_about() -> None:
    def refuse() -> None:
        raise InvalidBody("it carries no time")

    error = caught(refuse)

    assert describe_error(error) == "it carries no time"
    assert functions_in(find_frames(error))[-1] == "refuse"
    assert find_frames(InvalidBody("never raised")) == ()


def test_a_class_cannot_hide_behind_its_metaclass() -> None:
    class Meta(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            raise asyncio.CancelledError

    error = Meta("Masked", (BaseException,), {})("x")

    assert describe_error(error) == "Masked: x"

"""A command line that is told of no app but by its own words."""

from collections.abc import Callable

import pytest

from cli.__main__ import main

type Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def no_app_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCKSTEP_URL", raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command: its exit status, what it prints, and what it complains of."""
    return lambda *words: (main(words), *capsys.readouterr())

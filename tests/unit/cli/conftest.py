"""A command line that is told of no app but by its own words."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cli.__main__ import main

type Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def no_app_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LOCKSTEP_URL", raising=False)
    # Neither an app nor what runs of it is in this folder or above it.
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command: its exit status, what it prints, and what it complains of."""
    return lambda *words: (main(words), *capsys.readouterr())

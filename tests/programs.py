"""Programs that tests call, where they are installed."""

import shutil

import pytest


def find_program(name: str) -> str:
    """Return the path of a program that is installed; otherwise the test is not run, in CI too."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"not run: {name} is not installed: `.ci/setup tests` does it where it may")
    return path

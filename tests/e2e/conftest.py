"""The cloud of a test: what a module's SETTINGS say overrides the settings of the config."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Stack, running_stack


@pytest.fixture
def stack(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stack]:
    with running_stack(tmp_path, **getattr(request.module, "SETTINGS", {})) as stack:
        yield stack

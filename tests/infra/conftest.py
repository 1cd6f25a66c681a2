"""A test with `resources` runs over each snapshot; it can also be called with another one."""

import pytest

from tests.infra.snapshots import Resources, read_snapshot


@pytest.fixture(params=["default", "everything", "other"])
def resources(request: pytest.FixtureRequest) -> Resources:
    return read_snapshot(request.param)

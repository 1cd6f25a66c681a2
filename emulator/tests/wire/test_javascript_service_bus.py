"""The JavaScript SDK finds the same service."""

import pytest

from wire.javascript_packages import run_javascript_tests
from wire.service_bus import running_bus

pytestmark = pytest.mark.wire


def test_azure_service_bus_of_npm_connects_unchanged() -> None:
    with running_bus() as bus:
        report = run_javascript_tests(
            "service_bus.test.cjs", SERVICE_BUS=bus.namespace.connection_string
        )

    assert "fail 0" in report
    assert "skipped 0" in report

"""The JavaScript SDK finds the same service."""

import pytest

from tests.wire.javascript_packages import run_javascript_tests
from tests.wire.packages import program
from tests.wire.service_bus import running_bus

pytestmark = pytest.mark.wire


def test_azure_service_bus_of_npm_connects_unchanged() -> None:
    with running_bus() as bus:
        report = run_javascript_tests(
            "service_bus.test.cjs", SERVICE_BUS=bus.namespace.connection_string
        )

    assert "fail 0" in report
    assert "skipped 0" in report


def test_without_node_tests_skip_on_a_laptop_and_fail_in_ci(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-node"):
        program("no-such-node")

    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-node"):
        program("no-such-node")

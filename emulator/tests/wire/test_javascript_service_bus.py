"""The JavaScript SDK finds the same service."""

from pathlib import Path

import pytest

from local.servicebus.config import NamespaceConfig, QueueConfig
from pages.pages import page
from wire.javascript_packages import run_javascript_program, run_javascript_tests
from wire.service_bus import running_bus

pytestmark = pytest.mark.wire


def test_azure_service_bus_of_npm_connects_unchanged() -> None:
    with running_bus() as bus:
        report = run_javascript_tests(
            "service_bus.test.cjs", SERVICE_BUS=bus.namespace.connection_string
        )

    assert "fail 0" in report
    assert "skipped 0" in report


def test_the_first_program_of_the_page_runs_as_it_stands_there(tmp_path: Path) -> None:
    (program,) = page("docs/service-bus.md").programs("js")
    config = NamespaceConfig("east", (QueueConfig("orders", requires_session=True),), ())
    with running_bus(config=config) as bus:
        text = bus.namespace.connection_string

        assert run_javascript_program(program, tmp_path, SERVICE_BUS=text) == "one pear\n"
        assert set(bus.namespace.depth("orders").values()) == {0}

"""The month's bill follows from the templates, from the load and from every price."""

from dataclasses import replace

import pytest

from docs.site import cost_table
from docs.site.cost_table import PRICES, SIZES, WORKED, Size, bill, read_deployment
from tests.docs.pages import page
from tests.infra.test_deploy_page import declared

MADE = read_deployment()


def render_all() -> list[str]:
    return [cost_table.render_month(), cost_table.render_switches()]


@pytest.mark.parametrize("name", PRICES)
def test_every_price_is_in_the_bill(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    before = render_all()
    amount, what = PRICES[name]

    monkeypatch.setattr(cost_table, "PRICES", {**PRICES, name: (amount * 10, what)})

    assert render_all() != before


@pytest.mark.parametrize(
    ("messages", "expected"),
    # 6 operations each, and 0.7 million of idle sessions; 13 million come with the base.
    [(0, 10), (2_000_000, 10), (10_000_000, 10 + 47.7 * 0.8), (30_000_000, 10 + 69.6 + 80.7 * 0.5)],
)
def test_operations_of_standard_are_paid_by_steps(messages: float, expected: float) -> None:
    found = bill(Size("", messages), replace(MADE, sessions=8, regions=2))["Service Bus"]

    assert found == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(
    ("row", "changed", "adds"),
    [
        ("alerts and availability tests", {"log_rules": MADE.log_rules + 10}, 15),
        ("instances that are always ready", {"warm": {**MADE.warm, "function:recover": 1}}, 42),
        # A floor of 800 in place of 400 RU/s.
        ("journal: throughput", {"containers": [8000, 1000]}, 140),
    ],
)
def test_a_template_that_costs_more_shows_in_its_row(
    row: str, changed: dict[str, object], adds: float
) -> None:
    before, after = bill(WORKED, MADE), bill(WORKED, replace(MADE, **changed))  # type: ignore[arg-type]

    assert after[row] - before[row] == pytest.approx(adds, abs=1)
    assert {name: cost for name, cost in after.items() if name != row} == {
        name: cost for name, cost in before.items() if name != row
    }


def test_a_message_by_http_costs_more_than_one_by_queue() -> None:
    trial, queue, http, *_ = (sum(bill(size, MADE).values()) for size in SIZES)

    assert trial < queue < http


def test_the_cap_of_the_workspaces_bounds_what_telemetry_costs() -> None:
    logs = bill(SIZES[-1], MADE)["logs, traces and metrics"]

    assert logs == pytest.approx(5 * 730 / 24 * 2 * 2.30)


def test_every_switch_is_a_parameter() -> None:
    switches = {row[0].split("`")[1] for row in page("docs/cost.md").table("switch").rows}

    assert len(switches) > 10
    assert switches <= declared("param", "main.bicep") | declared("param", "region.bicep")

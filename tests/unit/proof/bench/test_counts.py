"""From counters to figures, and from figures to what is printed and whether the aims hold."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from functions.handlers.tracking import FlightStatus
from proof.bench.counts.__main__ import (
    WHOLE_WAY_AIMS,
    Aim,
    format_backlog,
    format_table,
    list_aims,
    parse_plan,
)
from proof.bench.counts.waves import (
    CounterReading,
    CountPlan,
    MessageCosts,
    ServiceUsage,
    VisitCosts,
    compute_usage,
)
from proof.bench.load import BODY_BYTES, make_statuses
from proof.testbed.control import Tallies

NOTHING: Tallies = {}


def reading(tallies: Tallies, documents: int) -> CounterReading:
    return CounterReading(tallies, documents, tallies)


def test_writes_reads_and_units_are_told_apart() -> None:
    after: Tallies = {
        ("cosmos.journal", "create", "201"): (3, 16.5),
        ("cosmos.journal", "create", "409"): (2, 2.0),
        ("cosmos.journal", "replace", "200"): (4, 44.0),
        ("cosmos.journal", "read", "404"): (1, 1.0),
        ("cosmos.journal", "query", "200"): (1, 4.6),
    }

    counted = compute_usage(reading(NOTHING, 0), reading(after, 3), None)

    assert counted == ServiceUsage(writes=7, documents=7, refused=2, reads=2, units=68.1)


def test_what_the_clock_and_not_the_message_pays_for_is_left_out() -> None:
    after: Tallies = {
        ("cosmos", "account", "200"): (9, 9.0),
        ("cosmos.leases", "create", "201"): (2, 11.0),
        ("cosmos.leases", "replace", "200"): (5, 110.0),
        ("cosmos.journal", "feed", "304"): (6, 27.6),
        ("servicebus.east", "authorize", "ok"): (2, 0.0),
    }

    assert compute_usage(reading(NOTHING, 0), reading(after, 0), None) == ServiceUsage()


def test_a_page_of_the_change_feed_that_held_something_is_kept_apart() -> None:
    after: Tallies = {("cosmos.journal", "feed", "200"): (2, 10.4)}

    assert compute_usage(reading(NOTHING, 0), reading(after, 0), None) == ServiceUsage(
        feed_units=10.4
    )


def test_only_what_came_between_two_readings_counts_and_looking_does_not() -> None:
    look = ("cosmos.journal", "query", "200")
    batch = ("cosmos.journal", "batch", "200")
    begin = CounterReading({look: (1, 2.0)}, 5, {look: (2, 4.0)})
    end = CounterReading({look: (2, 4.0), batch: (1, 6.0)}, 7, {look: (3, 6.0), batch: (1, 6.0)})

    assert compute_usage(begin, end, None) == ServiceUsage(writes=1, documents=2, units=6.0)


def test_documents_of_batches_that_replace_are_given_by_the_system() -> None:
    after: Tallies = {
        ("cosmos.documents", "batch", "200"): (3, 49.5),
        ("cosmos.documents", "batch", "207"): (1, 1.0),
        ("cosmos.documents", "upsert", "200"): (3, 33.0),
    }

    counted = compute_usage(reading(NOTHING, 0), reading(after, 3), 2)

    assert counted == ServiceUsage(writes=6, documents=9, refused=1, units=83.5)


def test_abandons_dead_letters_and_lost_locks_are_given_back() -> None:
    after: Tallies = {
        (f"servicebus.{region}", operation, "ok"): (1, 0.0)
        for region in ("east", "west")
        for operation in ("send", "deliver", "complete", "abandon", "dead-letter", "expire-lock")
    }

    counted = compute_usage(reading(NOTHING, 0), reading(after, 0), None)

    assert counted == ServiceUsage(bus_operations=12, given_back=6)


CHEAP = MessageCosts(
    primary=ServiceUsage(writes=1, documents=1, reads=1, units=8.4, bus_operations=3),
    secondary=ServiceUsage(reads=1, units=2.4, bus_operations=3),
)
WARM = MessageCosts(primary=ServiceUsage(writes=1, documents=1, units=8), secondary=ServiceUsage())
BACKLOG = MessageCosts(
    primary=ServiceUsage(writes=0.1, units=0.9), secondary=ServiceUsage(reads=0.1, units=0.3)
)
VISITS = VisitCosts(cold=CHEAP, warm=WARM, again=CHEAP, feed_units=0.5)


WHOLE = dict.fromkeys(WHOLE_WAY_AIMS, 20.0)


def missed(
    visits: VisitCosts,
    backlog: MessageCosts = BACKLOG,
    whole: Mapping[str, float] = WHOLE,
) -> list[str]:
    return [str(aim) for aim in list_aims(visits, backlog, whole) if not aim.holds]


def test_all_aims_hold_for_figures_within_them() -> None:
    assert missed(VISITS) == []


def test_a_whole_way_that_costs_too_much_is_named() -> None:
    assert missed(VISITS, whole={**WHOLE, "one output": 60.5}) == [
        "request units of the whole way, one output: 60.50, at most 28"
    ]


def test_an_aim_that_is_missed_is_named_with_what_was_counted() -> None:
    dear = replace(CHEAP, secondary=ServiceUsage(reads=2, refused=1, units=30, given_back=1))

    assert missed(replace(VISITS, again=dear)) == [
        "secondary writes and refused writes, again: 1.00, at most 0",
        "secondary reads, again: 2.00, at most 1",
        "messages given back: 1.00, at most 0",
    ]
    assert missed(replace(VISITS, cold=dear))[0] == (
        "request units over both regions, cold: 38.40, at most 13"
    )


def test_a_backlog_has_aims_of_its_own() -> None:
    assert missed(VISITS, CHEAP) == [
        "strong writes, backlog: 1.00, at most 0.1",
        "request units over both regions, backlog: 10.80, at most 1.5",
    ]


def test_a_mean_may_be_off_by_no_more_than_rounding() -> None:
    assert Aim("writes", sum([0.1] * 10) + 1e-9, 1.0).holds
    assert not Aim("writes", 1.01, 1.0).holds


def test_the_table_shows_every_system_cold_warm_and_again_side_by_side() -> None:
    costs = replace(CHEAP, primary=ServiceUsage(writes=4, units=40))
    dear = VisitCosts(cold=costs, warm=costs, again=costs, feed_units=0.0)

    rows = list(format_table({"ours": VISITS, "theirs": dear}))

    assert rows[0].split() == ["ours", "theirs"]
    assert rows[1].split() == ["per", "message", *["cold", "warm", "again"] * 2]
    assert rows[3].split() == ["strong", "writes", "1.00", "1.00", "1.00", "4.00", "4.00", "4.00"]
    assert "  request units                 10.80   8.00  10.80  42.40  42.40  42.40" in rows
    assert rows[-1].split() == ["change", "feed,", "request", "units", "0.50", "0.00"]


def test_the_line_about_a_backlog_says_what_it_costs() -> None:
    assert "0.10 strong writes, 0.10 reads, 1.20 request units" in format_backlog(BACKLOG)


def test_messages_are_of_one_kilobyte_and_what_the_handler_reads() -> None:
    messages = make_statuses("N1", range(3))

    assert {len(message.body) for message in messages} == {BODY_BYTES}
    assert [FlightStatus.model_validate_json(m.body).flight for m in messages] == [
        "UA0",
        "UA0",
        "UA1",
    ]
    assert len({message.id for message in messages}) == 3


def test_the_command_line_has_defaults_and_refuses_what_cannot_be_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert parse_plan([]) == CountPlan(sessions=20, each=20)
    with pytest.raises(SystemExit, match="2"):
        parse_plan(["--each", "1"])
    assert "must be at least 2" in capsys.readouterr().err

"""From counters to figures, and from figures to whether the aims hold."""

from collections.abc import Mapping
from dataclasses import replace

from functions.handlers.tracking import FlightStatus
from local.testing.control import Tallies
from proof.bench.counts.__main__ import (
    WHOLE_WAY_AIMS,
    Aim,
    format_table,
    list_aims,
)
from proof.bench.counts.waves import (
    CounterReading,
    MessageCosts,
    ServiceUsage,
    VisitCosts,
    compute_usage,
)
from proof.bench.edges.__main__ import count_requests
from proof.bench.load import BODY_BYTES, make_statuses

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


def test_what_the_clock_and_not_the_message_pays_for_is_left_out_or_kept_apart() -> None:
    after: Tallies = {
        ("cosmos", "account", "200"): (9, 9.0),
        ("cosmos.leases", "create", "201"): (2, 11.0),
        ("cosmos.leases", "replace", "200"): (5, 110.0),
        ("cosmos.journal", "feed", "304"): (6, 27.6),
        ("cosmos.journal", "feed", "200"): (2, 10.4),
        ("servicebus.east", "authorize", "ok"): (2, 0.0),
    }

    counted = compute_usage(reading(NOTHING, 0), reading(after, 0), None)

    assert counted == ServiceUsage(feed_units=10.4)


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


def test_all_aims_hold_for_figures_within_them_and_each_system_has_its_figures() -> None:
    assert missed(VISITS) == []
    rows = list(format_table({"ours": VISITS, "theirs": VISITS}))
    assert rows[3].split() == ["strong", "writes", *2 * ["1.00"] * 3]


def test_a_whole_way_and_a_backlog_have_aims_of_their_own() -> None:
    assert missed(VISITS, whole={**WHOLE, "one output": 60.5}) == [
        "request units of the whole way, one output: 60.50, at most 28"
    ]
    assert missed(VISITS, CHEAP) == [
        "strong writes, backlog: 1.00, at most 0.1",
        "request units over both regions, backlog: 10.80, at most 1.5",
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


def test_a_mean_may_be_off_by_no_more_than_rounding() -> None:
    assert Aim("writes", sum([0.1] * 10) + 1e-9, 1.0).holds
    assert not Aim("writes", 1.01, 1.0).holds


def test_messages_are_of_one_kilobyte_and_what_the_handler_reads() -> None:
    messages = make_statuses("N1", range(3))

    assert {len(message.body) for message in messages} == {BODY_BYTES}
    assert [FlightStatus.model_validate_json(m.body).flight for m in messages] == [
        "UA0",
        "UA0",
        "UA1",
    ]
    assert len({message.id for message in messages}) == 3


def test_requests_are_counted_however_they_ended_and_without_the_feed() -> None:
    rows = {"200": {"count": 2}, "403": {"count": 3}}

    assert count_requests({"cosmos.journal": {"batch": rows, "read": rows, "feed": rows}}) == 10

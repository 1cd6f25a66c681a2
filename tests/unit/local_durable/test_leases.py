"""Leases on work items, without a backend around them."""

from local.durable.leases import Kind, Leases


def test_an_answer_counts_once() -> None:
    leases = Leases(60)
    leases.grant("t1", Kind.ACTIVITY, "one", "east")

    first, second = leases.end("t1"), leases.end("t1")

    assert first is not None
    assert (first.instance_id, first.kind) == ("one", Kind.ACTIVITY)
    assert second is None


def test_a_worker_that_leaves_gives_back_its_own_and_nothing_else() -> None:
    leases = Leases(60)
    for holder in ("east", "west"):
        leases.arrive(holder)
        leases.grant(f"{holder}-1", Kind.ACTIVITY, "one", holder)
        leases.grant(f"{holder}-2", Kind.ENTITY, "two", holder)

    given_back = leases.leave("east")

    assert [lease.token for lease in given_back] == ["east-1", "east-2"]
    assert not leases.is_present("east")
    assert leases.is_present("west")
    assert [leases.holds("west", kind) for kind in Kind] == [0, 1, 1]


def test_a_worker_is_there_until_its_last_stream_closes() -> None:
    leases = Leases(60)
    leases.arrive("east")
    leases.arrive("east")
    leases.grant("t1", Kind.ORCHESTRATION, "one", "east")

    assert leases.leave("east") == []
    assert [lease.token for lease in leases.leave("east")] == ["t1"]


def test_only_leases_whose_time_is_over_expire() -> None:
    leases = Leases(0)
    leases.grant("t1", Kind.ACTIVITY, "one", "east")
    lasting = Leases(60)
    lasting.grant("t2", Kind.ACTIVITY, "one", "east")

    assert [lease.token for lease in leases.expired()] == ["t1"]
    assert leases.expired() == []
    assert lasting.expired() == []

"""WorkItemLeases on work items, without a backend around them."""

from local.durable.hub import WorkItemKind, WorkItemLeases


def test_an_answer_counts_once() -> None:
    leases = WorkItemLeases(60)
    leases.grant("t1", WorkItemKind.ACTIVITY, "one", "east")

    first, second = leases.end("t1"), leases.end("t1")

    assert first is not None
    assert (first.instance_id, first.kind) == ("one", WorkItemKind.ACTIVITY)
    assert second is None


def test_a_worker_that_leaves_gives_back_its_own_and_nothing_else() -> None:
    leases = WorkItemLeases(60)
    for holder in ("east", "west"):
        leases.add_stream(holder)
        leases.grant(f"{holder}-1", WorkItemKind.ACTIVITY, "one", holder)
        leases.grant(f"{holder}-2", WorkItemKind.ENTITY, "two", holder)

    given_back = leases.remove_stream("east")

    assert [lease.token for lease in given_back] == ["east-1", "east-2"]
    assert not leases.is_present("east")
    assert leases.is_present("west")
    assert [leases.count_by_kind("west")[kind] for kind in WorkItemKind] == [0, 1, 1]


def test_a_worker_is_there_until_its_last_stream_closes() -> None:
    leases = WorkItemLeases(60)
    leases.add_stream("east")
    leases.add_stream("east")
    leases.grant("t1", WorkItemKind.ORCHESTRATION, "one", "east")

    assert leases.remove_stream("east") == []
    assert [lease.token for lease in leases.remove_stream("east")] == ["t1"]


def test_only_leases_whose_time_is_over_expire() -> None:
    leases = WorkItemLeases(0)
    leases.grant("t1", WorkItemKind.ACTIVITY, "one", "east")
    lasting = WorkItemLeases(60)
    lasting.grant("t2", WorkItemKind.ACTIVITY, "one", "east")

    assert [lease.token for lease in leases.expire()] == ["t1"]
    assert leases.expire() == []
    assert lasting.expire() == []

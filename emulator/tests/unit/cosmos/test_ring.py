"""How the ring of effective keys is cut into physical partitions."""

from itertools import pairwise

import pytest

from local.cosmos.items.partitions import (
    PARTITIONS_MAX,
    KeyRange,
    canonicalize,
    count_partitions,
    cut_ring,
    hash_key,
)


@pytest.mark.parametrize("count", [1, 2, 3, 5, PARTITIONS_MAX])
def test_partitions_follow_each_other_around_the_ring(count: int) -> None:
    ranges = cut_ring(count).ranges

    assert len(ranges) == count
    assert (ranges[0].start, ranges[-1].end) == ("", "FF")
    for one, following in pairwise(ranges):
        assert one.start < one.end == following.start


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_key_is_in_the_partition_that_covers_it_and_all_partitions_are_used(count: int) -> None:
    ring = cut_ring(count)
    keys = [canonicalize(f"DL{number}") for number in range(200)]

    numbers = [ring.find_partition(key) for key in keys]

    assert {*numbers} == {*ring.numbers}
    for key, number in zip(keys, numbers, strict=True):
        assert [one.covers(key) for one in ring.ranges].index(True) == number
        assert sum(one.covers(key) for one in ring.ranges) == 1


def test_the_ring_is_cut_where_the_service_cuts_it() -> None:
    fourth = cut_ring(5).ranges[3]

    assert fourth == KeyRange("26666666666666666666666666666664", "3" * 31 + "0")


def test_a_part_of_the_ring_is_in_one_partition_or_in_none() -> None:
    ring = cut_ring(2)
    first, second = ring.ranges
    place = hash_key(canonicalize("DL1742"))

    assert ring.find_partition_around(first) == 0
    assert ring.find_partition_around(second) == 1
    assert ring.find_partition_around(KeyRange()) is None
    assert ring.find_partition_around(KeyRange(place, place + "FF")) == ring.find_partition(
        canonicalize("DL1742")
    )


@pytest.mark.parametrize(
    ("throughput", "partitions"),
    [(0, 1), (400, 1), (10_000, 1), (10_001, 2), (12_000, 2), (30_000, 5), (10**9, 64)],
)
def test_one_partition_serves_ten_thousand_units_a_second(throughput: int, partitions: int) -> None:
    assert count_partitions(throughput) == partitions

"""The ring of effective keys, cut into the physical partitions of a container.

A client learns the cut from `pkranges` and names one partition by its number. Nothing is ever split
or merged: a container keeps the cut it was created with.
"""

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from local.cosmos.partition import MAX_RANGE, KeyRange, effective_key

PARTITIONS_MAX = 64
PARTITION_THROUGHPUT = 10_000  # request units a second that one physical partition serves
KEYS = 1 << 126  # effective keys have 128 bits, and the highest two are zero


@dataclass(frozen=True, slots=True)
class Ring:
    """Physical partitions, numbered along the ring; each begins where the one before it ends."""

    ranges: tuple[KeyRange, ...]
    starts: tuple[str, ...]
    numbers: tuple[int, ...]

    def partition_of(self, key: str) -> int:
        """The number of the partition a canonical key is in; a ring of one needs no hash."""
        if len(self.starts) == 1:
            return 0
        return bisect_right(self.starts, effective_key(key)) - 1

    def partition_around(self, key_range: KeyRange) -> int | None:
        """The number of the one partition all of an interval is in; None if there is none."""
        number = bisect_right(self.starts, key_range.start) - 1
        return number if key_range.end <= self.ranges[number].end else None


def partitions_for(throughput: int) -> int:
    """How many physical partitions a container is created with for so many request units a second.

    Specification: "Partitioning and horizontal scaling in Azure Cosmos DB".
    """
    return min(PARTITIONS_MAX, max(1, ceil(throughput / PARTITION_THROUGHPUT)))


@lru_cache
def cut_ring(count: int) -> Ring:
    """Cut the ring into partitions of one size."""
    inner = [f"{KEYS * number // count:032X}" for number in range(1, count)]
    starts = ("", *inner)
    ranges = tuple(KeyRange(*bounds) for bounds in zip(starts, (*inner, MAX_RANGE), strict=True))
    return Ring(ranges, starts, tuple(range(count)))

"""The smallest misfortune that breaks a promise: most of what happened is innocent."""

from collections.abc import Callable, Collection, Sequence

from simulation.run import Report

type Again = Callable[[Collection[int]], Report]


def shrunk(report: Report, again: Again, tries: int = 150) -> Report:
    """The same failure with as few misfortunes as a greedy search finds.

    `again` runs the seed with some misfortunes only. Larger parts are left out first, then single
    ones; what must not happen changes what happens after it, so each try is a story of its own.
    """
    smallest = report
    size = max(1, len(report.diary) // 2)
    while tries > 0:
        before = smallest
        for fewer in parts_left_out(numbers_of(smallest), size):
            if tries <= 0:
                break
            tries -= 1
            found = again(fewer)
            if found.violations and len(found.diary) < len(smallest.diary):
                smallest = found
                break
        if smallest is before:
            if size == 1:
                break
            size //= 2
    return smallest


def numbers_of(report: Report) -> list[int]:
    """The misfortunes of a run."""
    return [mishap.number for mishap in report.diary]


def parts_left_out(numbers: Sequence[int], size: int) -> list[list[int]]:
    """The misfortunes without a part of them, for each part of a size."""
    return [[*numbers[:start], *numbers[start + size :]] for start in range(0, len(numbers), size)]

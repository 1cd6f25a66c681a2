"""Rates side by side, ratios and the profile, as text."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from statistics import median

from bench.throughput.consuming import Rate, Shape
from bench.throughput.profile import Profile

NAME_WIDTH = 20
FUNCTIONS_SHOWN = 15

# By contestant, one rate per round.
type Rates = Mapping[str, Sequence[Rate]]


def format_table(shape: Shape, rates: Rates, ours: str) -> str:
    """Medians over the rounds, their spread, and what ours is to each other contestant."""
    return "\n".join(format_lines(shape, rates, ours))


def format_lines(shape: Shape, rates: Rates, ours: str) -> Iterator[str]:
    yield f"{shape.sessions} sessions of {shape.each} messages"
    yield (
        f"{'':{NAME_WIDTH}}{'msg/s':>8}{'min':>7}{'max':>7}{'ours is':>9}"
        f"{'consumer ms':>13}{'busy':>6}{'cloud ms':>10}{'busy':>6}"
    )
    for name, rounds in rates.items():
        yield format_row(name, rounds, compute_ratio(rates[ours], rounds))


def format_row(name: str, rounds: Sequence[Rate], ours_is: float) -> str:
    speeds = [rate.per_second for rate in rounds]
    consumer = median(rate.consumer_each for rate in rounds)
    cloud = median(rate.cloud_each for rate in rounds)
    consumer_busy = median(rate.consumer_seconds / rate.seconds for rate in rounds)
    cloud_busy = median(rate.cloud_seconds / rate.seconds for rate in rounds)
    return (
        f"{name:{NAME_WIDTH}}{median(speeds):8.0f}{min(speeds):7.0f}{max(speeds):7.0f}"
        f"{ours_is:8.2f}x{consumer * 1000:13.2f}{consumer_busy:6.0%}"
        f"{cloud * 1000:10.2f}{cloud_busy:6.0%}"
    )


def compute_ratio(ours: Sequence[Rate], theirs: Sequence[Rate]) -> float:
    """The median over the rounds: what the machine does to one round, it does to both."""
    pairs = zip(ours, theirs, strict=True)
    return median(own.per_second / other.per_second for own, other in pairs)


def format_profile(rate: Rate, profile: Profile) -> Iterator[str]:
    yield (
        f"where the host's {rate.consumer_each * 1000:.2f} ms per message go "
        f"({profile.samples} samples, {rate.per_second:.0f} msg/s while sampled)"
    )
    for title, shares, shown in (
        ("by owner", profile.owners, len(profile.owners)),
        ("by function, itself", profile.itself, FUNCTIONS_SHOWN),
        ("by function of ours, with what it calls", profile.ours, FUNCTIONS_SHOWN),
    ):
        yield title
        for name, share in islice(shares.items(), shown):
            yield f"  {share:6.1%}{share * rate.consumer_each * 1000:7.2f} ms  {name}"

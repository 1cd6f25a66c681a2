"""When the next turn of the run is due: pure decisions on what the stage sees.

The clock is the number of deliveries completed, not the number of effects: a second run over a
journal that is full already goes through the same course.
"""

from demo.samples import Sample

KILL_AT_PART = 0.30
RETURN_AT_PART = 0.25
FEED_SECONDS = 45.0
RATE_MIN = 1.0


def feed_rate(events: int) -> float:
    """Return how many messages a second make the feed long enough for an outage in its middle."""
    return max(RATE_MIN, events / FEED_SECONDS)


def kill_is_due(now: Sample, primary: str, events: int) -> bool:
    """Whether the primary has handled enough to be killed in mid-flow."""
    return now.regions[primary].settled >= KILL_AT_PART * events


def return_is_due(now: Sample, killed: Sample, secondary: str, events: int) -> bool:
    """Whether the secondary has done enough alone, or all there was, for the primary to return.

    What lay in the secondary's queue at the kill may be copies of work the primary had done, so
    as much again does not count.
    """
    done = now.regions[secondary].settled - killed.regions[secondary].settled
    return done >= RETURN_AT_PART * events + killed.regions[secondary].outstanding


def is_drained(now: Sample) -> bool:
    """Whether nothing is outstanding in any queue, and every region is there to say so."""
    regions = now.regions.values()
    is_up = all(region.host_up and region.namespace_up for region in regions)
    return is_up and now.outstanding == 0

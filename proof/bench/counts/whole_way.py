"""Counts a message's whole way: from HTTP until both regions have settled it and got its outputs.

It is published, or asked: applied at once and answered, without a copy in any queue. Messages come
one at a time, each when the one before it has been acknowledged, so nothing is shared. What is paid
by the clock is left out: leases, and of the change feed what a poll costs that finds nothing.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from local.functions_host.config.keys import DEVELOPMENT_KEY
from local.testing.cloud import CloudProcess
from local.testing.control import CounterKey, flatten_counters, request_json, subtract_tallies
from local.testing.patience import wait_until
from proof.bench.counts.waves import WAVE_SECONDS_MAX, compute_row_usage
from proof.bench.systems import NO_CLOCKWORK
from proof.testbed.apps import compose_app
from proof.testbed.cloud import running_cloud
from proof.testbed.command import RunFailed

KINDS = {
    "no output": "silently",
    "one output": "aloud",
    "one output, 100 kB of state": "at_length",
}
SESSIONS, EACH = 5, 4
# A session's first entries have marks for compaction, which later ones have not.
WARM_UPS = 4
# A page of the change feed that holds nothing.
EMPTY_POLL_UNITS = 4.6
PUBLISHED, ASKED = "published", "asked"
ACCEPTED, ANSWERED = 202, 200
# The last write is the acknowledgement, which waits half a second for a next message.
QUIET_SECONDS = 4.0


def count_whole_way() -> dict[str, dict[str, float]]:
    """Return the request units of a message by way and kind, in sessions that have had some."""
    with running_counter() as cloud:
        return {
            way: {what: count_kind(cloud, kind, way) for what, kind in KINDS.items()}
            for way in (PUBLISHED, ASKED)
        }


def count_kind(cloud: CloudProcess, kind: str, way: str) -> float:
    go_round(cloud, kind, way, range(WARM_UPS))
    before = flatten_counters(cloud.control.read_counters())
    for number in range(WARM_UPS, WARM_UPS + EACH):
        go_round(cloud, kind, way, range(number, number + 1))
    rows = subtract_tallies(before, flatten_counters(cloud.control.read_counters()))
    units = sum(compute_units(row, *tally) for row, tally in rows.items())
    return units / (SESSIONS * EACH)


def compute_units(row: CounterKey, count: int, units: float) -> float:
    """Return what is paid for messages of a row of the counters."""
    usage = compute_row_usage(*row, count, units)
    polls = count if usage.feed_units else 0
    return usage.units + usage.feed_units - polls * EMPTY_POLL_UNITS


def go_round(cloud: CloudProcess, kind: str, way: str, numbers: range) -> None:
    """Post messages to each session of a kind, and wait until nothing is left to do."""
    count = cloud.control.count_completed
    settled = {region: count(region) for region in cloud.regions}
    for number, place in product(numbers, range(SESSIONS)):
        post_kind(cloud, kind, way, number, place)
    copies = 0 if way == ASKED else SESSIONS * len(numbers)
    wait_until(
        lambda: all(count(region) >= settled[region] + copies for region in cloud.regions),
        seconds=WAVE_SECONDS_MAX,
        what="the regions did not complete their copies",
        error=RunFailed,
    )
    # A queue's counter says nothing of acknowledgements.
    time.sleep(QUIET_SECONDS)


def post_kind(cloud: CloudProcess, kind: str, way: str, number: int, place: int) -> None:
    host = cloud.contract["hosts"][cloud.regions[0]]
    address = f"{host}/api/sessions/{kind}-{way}-{place}/messages?type=count.{kind}"
    headers = {"x-functions-key": DEVELOPMENT_KEY, "Idempotency-Key": f"{kind}-{number}"}
    wish = {"Prefer": "wait=10"} if way == ASKED else {}
    status, answer = request_json("POST", address, {}, headers=headers | wish)
    if status != (ANSWERED if way == ASKED else ACCEPTED):
        raise RunFailed(f"a message was not {way}: {status} {answer}")


@contextmanager
def running_counter() -> Iterator[CloudProcess]:
    """Run a cloud with the app of this measurement in both regions."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        compose_app(Path(__file__).parent / "app", Path(name))
        with running_cloud("--app", name, settings=NO_CLOCKWORK) as cloud:
            yield cloud

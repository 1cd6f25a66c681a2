"""Counts a message's whole way: from HTTP until both regions have settled it and got its outputs.

Messages come one at a time, each when the one before it has been acknowledged, so nothing is
shared. Leases, and polls of the change feed that find nothing, are paid by the clock: left out.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local.functions_host.config.keys import DEVELOPMENT_KEY
from local.testing.cloud import CloudProcess
from local.testing.control import flatten_counters, request_json, subtract_tallies
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
ACCEPTED = 202
# The last write is the acknowledgement, which waits half a second for a next message.
QUIET_SECONDS = 4.0


def count_whole_way() -> dict[str, float]:
    """Return the request units of a message of each kind, in sessions that have had one before."""
    with running_counter() as cloud:
        return {what: count_kind(cloud, kind) for what, kind in KINDS.items()}


def count_kind(cloud: CloudProcess, kind: str) -> float:
    post_round(cloud, kind, 0)
    before = flatten_counters(cloud.control.read_counters())
    for number in range(1, EACH + 1):
        post_round(cloud, kind, number)
    rows = subtract_tallies(before, flatten_counters(cloud.control.read_counters()))
    usages = [compute_row_usage(*row, *tally) for row, tally in rows.items()]
    return sum(usage.units + usage.feed_units for usage in usages) / (SESSIONS * EACH)


def post_round(cloud: CloudProcess, kind: str, number: int) -> None:
    """Post one message to each session of a kind, and wait until nothing is left to do."""
    count = cloud.control.count_completed
    settled = {region: count(region) for region in cloud.regions}
    for place in range(SESSIONS):
        address = f"{cloud.contract['hosts'][cloud.regions[0]]}/api/sessions/{kind}-{place}"
        headers = {"x-functions-key": DEVELOPMENT_KEY, "Idempotency-Key": f"{kind}-{number}"}
        status, answer = request_json(
            "POST", f"{address}/messages?type=count.{kind}", {}, headers=headers
        )
        if status != ACCEPTED:
            raise RunFailed(f"a message was not accepted: {status} {answer}")
    wait_until(
        lambda: all(count(region) >= settled[region] + SESSIONS for region in cloud.regions),
        seconds=WAVE_SECONDS_MAX,
        what="the regions did not complete their copies",
        error=RunFailed,
    )
    # A queue's counter says nothing of acknowledgements.
    time.sleep(QUIET_SECONDS)


@contextmanager
def running_counter() -> Iterator[CloudProcess]:
    """Run a cloud with the app of this measurement in both regions."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        compose_app(Path(__file__).parent / "app", Path(name))
        with running_cloud("--app", name, settings=NO_CLOCKWORK) as cloud:
            yield cloud

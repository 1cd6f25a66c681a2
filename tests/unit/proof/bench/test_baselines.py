"""The baselines run on the local cloud and cost what their patterns say: nobody is made worse."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from proof.bench.counts.waves import MessageCosts, ServiceUsage, running_waves
from proof.bench.systems import CLAIM_AND_UPDATE, READ_BATCH_MARK, System

pytestmark = pytest.mark.e2e

SESSIONS, EACH = 2, 2


def one_wave(system: System) -> MessageCosts:
    with running_waves(system) as waves:
        return waves.run([f"smoke-{n}" for n in range(SESSIONS)], range(EACH))


@pytest.mark.proof
def test_each_message_costs_the_requests_of_its_pattern() -> None:
    with ThreadPoolExecutor() as both:
        claim, outbox = both.map(one_wave, (CLAIM_AND_UPDATE, READ_BATCH_MARK))

    # Create, Working, Completed and the state; 1 KB writes: 5.5 new, 11 replaced, 2 and 1 to read.
    first, later = 5.5 + 11 + 11 + 5.5 + 1, 5.5 + 11 + 11 + 11 + 2
    assert claim.primary.per(SESSIONS * EACH) == ServiceUsage(
        writes=4, documents=4, reads=1, units=(first + later) / 2, bus_operations=3.5
    )
    assert claim.secondary.per(SESSIONS * EACH) == ServiceUsage(
        refused=1, reads=1, units=3, bus_operations=3.5
    )
    # A batch of the record and the state, then the mark; a look at each before.
    first, later = 5.5 + 5.5 + 11 + 1 + 1, 5.5 + 11 + 11 + 1 + 2
    assert outbox.primary.per(SESSIONS * EACH) == ServiceUsage(
        writes=2, documents=3, reads=2, units=(first + later) / 2, bus_operations=3.5
    )
    assert outbox.secondary.per(SESSIONS * EACH) == ServiceUsage(
        reads=1, units=2, bus_operations=3.5
    )

"""Every call of the engine goes wrong in every way; so do some pairs. All end the same.

Of the calls that one line makes in a piece of work one goes wrong in each way, another one from run
to run; `make proof` tries all.
"""

import os
from functools import cache

import pytest

from tests.crash_points.calls import port_calls
from tests.crash_points.search import ONE_PAIR_IN, Searched, search, starts, starts_by_line
from tests.crash_points.workloads import WORKLOADS
from tests.sizes import FIRST_SEED, IS_PROOF

pytestmark = pytest.mark.slow


@cache
def searched(name: str) -> Searched:
    found = Searched()
    turn = int(os.environ[FIRST_SEED])
    for start in starts(name) if IS_PROOF else starts_by_line(name, turn):
        found.add(search(start, ONE_PAIR_IN))
    return found


@pytest.mark.parametrize("name", WORKLOADS)
def test_whatever_goes_wrong_the_end_is_the_same(name: str) -> None:
    assert searched(name).failures == []


def test_some_pairs_of_calls_went_wrong() -> None:
    assert sum(searched(name).pairs for name in WORKLOADS) > len(WORKLOADS)


def test_no_call_of_the_engine_is_forgotten() -> None:
    call_sites = {site for name in WORKLOADS for site in searched(name).call_sites}
    forgotten = [
        str(call) for call in port_calls() if not any(call.is_at(site) for site in call_sites)
    ]
    assert forgotten == [], "no piece of work in tests/crash_points/workloads.py makes these calls"

"""What is indexed, and what a write therefore costs."""

from typing import Any

import pytest

from local.cosmos import charges
from local.cosmos.items.indexing import DEFAULT_POLICY, parse_policy
from local.cosmos.responses import RequestRefused

JOURNAL = {
    "includedPaths": [{"path": "/session/?"}, {"path": "/owing/?"}],
    "excludedPaths": [{"path": "/*"}],
}


def test_only_named_paths_are_indexed_when_everything_is_excluded() -> None:
    policy = parse_policy(JOURNAL)

    assert policy.covers(("session",))
    assert policy.covers(("id",))
    assert policy.covers(("_ts",))
    assert not policy.covers(("position",))
    assert not policy.covers(("session", "deeper"))
    assert policy.count_indexed({"session": "s", "position": 7, "state": {"a": 1}}) == 1
    assert policy.count_indexed({"session": "s", "owing": True}) == 2


def test_the_elements_of_an_array_are_indexed_by_a_path_of_their_own() -> None:
    policy = parse_policy(
        {"includedPaths": [{"path": "/owing/[]/?"}], "excludedPaths": [{"path": "/*"}]}
    )

    assert policy.covers(("owing", "[]"))
    assert not policy.covers(("owing",))
    assert policy.count_indexed({"owing": ["east", "west"]}) == 2
    assert policy.count_indexed({"owing": "east", "other": ["east"]}) == 0
    assert policy.count_indexed({"owing": [["east"], {"to": "west"}]}) == 0


def test_the_default_policy_indexes_every_scalar() -> None:
    assert (
        parse_policy(DEFAULT_POLICY).count_indexed({"id": "1", "a": [1, 2], "b": {"c": None}}) == 4
    )


def test_the_more_precise_path_wins() -> None:
    policy = parse_policy(
        {
            "includedPaths": [{"path": "/*"}, {"path": "/a/b/?"}],
            "excludedPaths": [{"path": "/a/*"}],
        }
    )

    assert policy.covers(("x",))
    assert not policy.covers(("a", "c"))
    assert policy.covers(("a", "b"))


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ({"includedPaths": [{"path": "/a"}]}, "/a"),
        ({"includedPaths": [{}]}, "None"),
        ({"vectorIndexes": [{"path": "/v", "type": "flat"}]}, "vectorIndexes"),
        ("all", "object"),
    ],
)
def test_a_policy_that_cannot_be_honoured_is_refused_by_name(policy: Any, reason: str) -> None:
    with pytest.raises(RequestRefused, match=reason):
        parse_policy(policy)


def test_charges_meet_the_published_anchors() -> None:
    assert charges.read(1024, is_strong=False) == 1.0
    assert charges.read(100 * 1024, is_strong=False) == 10.0
    assert charges.read(1024, is_strong=True) == 2.0
    assert charges.insert(1024, 0) == 5.5
    assert charges.insert(100 * 1024, 0) == 50.0
    assert charges.replace(1024, 2) == 2 * charges.insert(1024, 2)


def test_charges_rise_with_every_started_kilobyte() -> None:
    assert charges.read(1025, is_strong=False) == charges.read(2048, is_strong=False)
    assert charges.read(1025, is_strong=False) > charges.read(1024, is_strong=False)

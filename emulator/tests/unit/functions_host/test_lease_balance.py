"""Which leases of a change feed a host takes."""

from datetime import UTC, datetime, timedelta

import pytest

from local.functions_host.clients.change_feed import FeedLease, leases_to_take

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EXPIRATION_SECONDS = 60.0


def leases(*owners: str | None, age_seconds: float = 1.0) -> list[FeedLease]:
    """Leases with these owners, all renewed the same time ago."""
    renewed = NOW - timedelta(seconds=age_seconds)
    return [FeedLease(str(n), str(n), {}, owner, None, renewed) for n, owner in enumerate(owners)]


@pytest.mark.parametrize(
    ("owners", "taken"),
    [
        ((None,), ["0"]),
        ((None, None, None), ["0", "1", "2"]),
        (("other",), []),
        (("me",), []),
        ((None, "other", None, "other"), ["0", "2"]),
        (("other", "other"), ["0"]),
        (("other", "other", "me"), []),
        (("other", "other", "other", "me"), ["0"]),
        (("a", "a", "b", "b", "b", "b"), ["2"]),
    ],
)
def test_free_leases_up_to_a_fair_share_else_one_from_the_richest(
    owners: tuple[str | None, ...], taken: list[str]
) -> None:
    chosen = leases_to_take(leases(*owners), "me", NOW, EXPIRATION_SECONDS)

    assert [lease.id for lease in chosen] == taken


def test_leases_not_renewed_in_time_are_free() -> None:
    chosen = leases_to_take(leases("dead", "dead", age_seconds=61), "me", NOW, EXPIRATION_SECONDS)

    assert [lease.id for lease in chosen] == ["0", "1"]


def test_hosts_that_choose_in_turn_end_with_equal_shares() -> None:
    held = leases(*["first"] * 7)
    for _ in range(10):
        for host in ("first", "second", "third"):
            taken = {lease.id for lease in leases_to_take(held, host, NOW, EXPIRATION_SECONDS)}
            owners = [host if lease.id in taken else lease.owner for lease in held]
            held = leases(*owners)

    counts = [sum(lease.owner == host for lease in held) for host in ("first", "second", "third")]
    assert sorted(counts) == [2, 2, 3]

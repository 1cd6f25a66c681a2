"""Which leases a host should take: free ones up to its share, and one from a host that has more."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from local.functions_host.changefeed.lease import Lease


def leases_to_take(
    leases: Sequence[Lease], host: str, now: datetime, expiration_seconds: float
) -> list[Lease]:
    """Choose leases for a host; hosts that choose alike converge to equal shares, give or take one.

    A live lease is taken from another host only one at a time, and only if that host holds at
    least two more than this one would.
    """
    free = [lease for lease in leases if lease.is_free(now, expiration_seconds)]
    held = Counter(lease.owner for lease in leases if lease not in free)
    hosts = len(held.keys() | {host})
    share = -(-len(leases) // hosts)
    wanted = share - held[host]
    if free:
        return free[: max(wanted, 0)]
    richest, most = max(held.items(), key=lambda item: item[1], default=(None, 0))
    if wanted > 0 and most >= held[host] + 2:
        return [lease for lease in leases if lease.owner == richest][:1]
    return []

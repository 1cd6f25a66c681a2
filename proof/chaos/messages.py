"""The names that a run's processes agree on: message types, queues, settings, and the digest chain.

The digest chain of a session says in one short text which messages were applied, in which order.
"""

from hashlib import sha256
from signal import SIGUSR1

GROUP = "chaos"
PURE = "flight.status"
EFFECTFUL = "flight.announced"
FAILING = "flight.failing"
UNKNOWN = "flight.unknown"
APPLIED = "chaos.applied"
# Types of messages that are to end as faults.
POISONED = frozenset({FAILING, UNKNOWN})
EFFECTS_QUEUE = "chaos-effects"
ERROR_QUEUE = "lockstep-errors"
RUNS_SETTING = "CHAOS_RUNS"
BUSES_SETTING = "CHAOS_SERVICEBUS"
CHAIN_START = ""
# Tells a sender that was started slow to be as fast as it may.
FULL_RATE_SIGNAL = SIGUSR1


def hash_content(message_type: str, body: bytes) -> str:
    return sha256(message_type.encode() + b"\0" + body).hexdigest()


def extend_chain(before: str, message_id: str, content: str) -> str:
    """Return the chain after one more message, of this id and content hash."""
    return sha256(f"{before}\n{message_id}\n{content}".encode()).hexdigest()

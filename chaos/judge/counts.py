"""How many things are looked at for each promise."""

from chaos.judge.promises import Case
from chaos.judge.promises import early as quiet


def safe(case: Case) -> int:
    """How many messages should have an effect and are safe."""
    return sum(sent.is_safe for sent in case.effects)


def applied(case: Case) -> int:
    """How many messages have an effect."""
    return sum(sent.id in case.history.copies for sent in case.effects)


def copies(case: Case) -> int:
    """How many outputs came out of how many queues, repeats apart."""
    return len({(one.region, one.output) for one in case.history.seen})


def seen(case: Case) -> int:
    """How many copies came out, and how many marked runs there were."""
    return len(case.history.seen) + len(case.history.runs)


def states(case: Case) -> int:
    """How many outputs came out, and how many sessions have a state."""
    return len(case.history.copies) + len(case.history.heads)


def lists(case: Case) -> int:
    """How many queues and lists were looked at for what is left."""
    return len(case.history.left.queued) + len(case.history.left.unfinished)


def early(case: Case) -> int:
    """How many copies and counters there were in the stretch without faults."""
    return sum(1 for _ in quiet(case)) + len(case.history.quiet.counts)


def documents(case: Case) -> int:
    """How many documents there were."""
    return sum(case.history.left.kinds.values())


def named(case: Case) -> int:
    """How many messages should end as a fault."""
    return len(case.poisoned)

"""A bounded memory forgets what was learned longest ago."""

from shared.engine.worker import Recent


def test_what_was_learned_longest_ago_is_forgotten_first() -> None:
    recent: Recent[str, int] = Recent(kept_max=2)
    for learned, name in enumerate(("a", "b", "a", "c")):
        recent[name] = learned

    assert dict(recent) == {"a": 2, "c": 3}

"""The decision table of docs/guarantees.md, from the rules that the engine applies."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from docs.site.markdown import table
from shared.domain.decision import RULES, HeadContent, NumberPlace, SessionState, Situation

ANY = "any"


@dataclass(frozen=True, slots=True)
class Impossible:
    """Situations that no head and message can be in, and why not."""

    sessions: frozenset[SessionState]
    newest: frozenset[HeadContent]
    places: frozenset[NumberPlace]
    why: str

    def includes(self, situation: Situation) -> bool:
        return (
            situation.session in self.sessions
            and situation.newest in self.newest
            and situation.place in self.places
        )


IMPOSSIBLE = (
    Impossible(
        frozenset({SessionState.EMPTY}),
        frozenset({HeadContent.SAME, HeadContent.OTHER}),
        frozenset(NumberPlace),
        "An empty session has no entry that could hold a message.",
    ),
    Impossible(
        frozenset({SessionState.EMPTY}),
        frozenset(HeadContent),
        frozenset({NumberPlace.PASSED, NumberPlace.FENCED, NumberPlace.FAULT}),
        "An empty session has no cursor: every group begins at 0, and nobody is fenced.",
    ),
    Impossible(
        frozenset({SessionState.OPEN, SessionState.ENDED}),
        frozenset(HeadContent),
        frozenset({NumberPlace.FAULT}),
        "An open or ended session has no fault that stops it.",
    ),
)


def situations() -> Iterator[Situation]:
    """Every combination of the facts that decide."""
    for session, newest, place in product(SessionState, HeadContent, NumberPlace):
        yield Situation(session, newest, place)


def render() -> str:
    """Table and impossible situations as Markdown."""
    return f"{render_table()}\n\n{render_impossible()}"


def render_table() -> str:
    rows = [
        (
            *(str(number), rule.session or ANY, rule.newest or ANY, rule.place or ANY),
            *(f"`{rule.decision.__name__}`", rule.why),
        )
        for number, rule in enumerate(RULES, 1)
    ]
    newest = "newest entry holds under its id or number"
    return table(("rule", "session", newest, "place of its number", "decision", "because"), rows)


def render_impossible() -> str:
    rows = [
        (
            *(name_facts(one.sessions, SessionState), name_facts(one.newest, HeadContent)),
            *(name_facts(one.places, NumberPlace), one.why),
        )
        for one in IMPOSSIBLE
    ]
    return table(("cannot occur: session", "newest entry holds", "place", "because"), rows)


def name_facts[F: (SessionState, HeadContent, NumberPlace)](
    chosen: frozenset[F], kind: type[F]
) -> str:
    """The chosen values in the order of the type."""
    if len(chosen) == len(kind):
        return ANY
    return ", ".join(fact for fact in kind if fact in chosen)

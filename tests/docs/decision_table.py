"""The decision table of docs/guarantees.md, generated from the rules that the engine applies.

`python -m tests.docs.decision_table` writes it into the page.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from shared.domain.decision import RULES, Newest, Place, Rule, Session, Situation

PAGE = Path(__file__).parents[2] / "docs/guarantees.md"
BEGIN = "<!-- decision table: begin -->"
END = "<!-- decision table: end -->"
COMMAND = "python -m tests.docs.decision_table"
ANY = "any"


@dataclass(frozen=True, slots=True)
class Impossible:
    """Situations that no head and message can be in, and why not."""

    sessions: frozenset[Session]
    newest: frozenset[Newest]
    places: frozenset[Place]
    why: str

    def includes(self, situation: Situation) -> bool:
        return (
            situation.session in self.sessions
            and situation.newest in self.newest
            and situation.place in self.places
        )


IMPOSSIBLE = (
    Impossible(
        frozenset({Session.EMPTY}),
        frozenset({Newest.SAME, Newest.OTHER}),
        frozenset(Place),
        "An empty session has no entry that could hold a message.",
    ),
    Impossible(
        frozenset({Session.EMPTY}),
        frozenset(Newest),
        frozenset({Place.PASSED, Place.FENCED, Place.FAULT}),
        "An empty session has no cursor: every group begins at 0, and nobody is fenced.",
    ),
    Impossible(
        frozenset({Session.OPEN}),
        frozenset(Newest),
        frozenset({Place.FAULT}),
        "An open session has no fault that stops it.",
    ),
)


def situations() -> Iterator[Situation]:
    """Every combination of the facts that decide."""
    for session, newest, place in product(Session, Newest, Place):
        yield Situation(session, newest, place)


def render() -> str:
    """Table, picture and impossible situations as Markdown."""
    return "\n\n".join((render_table(), render_picture(), render_impossible()))


def render_table() -> str:
    columns = (
        "rule",
        "session",
        "newest entry holds under its id or number",
        "place of its number",
        "decision",
        "because",
    )
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for number, rule in enumerate(RULES, 1):
        facts = " | ".join(fact or ANY for fact in (rule.session, rule.newest, rule.place))
        lines.append(f"| {number} | {facts} | `{rule.decision.__name__}` | {rule.why} |")
    return "\n".join(lines)


def render_picture() -> str:
    """The rules as questions from top to bottom, each with the decision that a yes leads to."""
    lines = ["```mermaid", "flowchart LR", "    start([newest entry and message]) --> rule1"]
    for number, rule in enumerate(RULES, 1):
        name = rule.decision.__name__
        lines.append(f'    rule{number}{{"{ask(rule)}"}} -- yes --> {name}(["{name}"])')
        if number < len(RULES):
            lines.append(f"    rule{number} -- no --> rule{number + 1}")
    return "\n".join([*lines, "```"])


def ask(rule: Rule) -> str:
    """A rule's conditions, one below the other."""
    conditions = []
    if rule.session is not None:
        conditions.append(f"session: {rule.session}")
    if rule.newest is not None:
        conditions.append(f"newest entry holds: {rule.newest}")
    if rule.place is not None:
        conditions.append(f"number: {rule.place}")
    return "<br>".join(conditions)


def render_impossible() -> str:
    lines = [
        "| cannot occur: session | newest entry holds | place | because |",
        "|---|---|---|---|",
    ]
    for one in IMPOSSIBLE:
        facts = (
            name_facts(one.sessions, Session),
            name_facts(one.newest, Newest),
            name_facts(one.places, Place),
        )
        lines.append(f"| {' | '.join(facts)} | {one.why} |")
    return "\n".join(lines)


def name_facts[F: (Session, Newest, Place)](chosen: frozenset[F], kind: type[F]) -> str:
    """The chosen values in the order of the type."""
    if len(chosen) == len(kind):
        return ANY
    return ", ".join(fact for fact in kind if fact in chosen)


def written() -> str:
    """What the page has between its markers."""
    return PAGE.read_text().split(BEGIN, 1)[1].split(END, 1)[0].strip("\n")


def main() -> None:
    page = PAGE.read_text()
    before, rest = page.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{render()}\n\n{END}{after}")


if __name__ == "__main__":
    main()

"""Which conditions an index serves: items they rule out need not be looked at, nor paid for.

A condition of a property and constants is served where the indexing policy covers the path: of an
array's elements, by `/path/[]/?`. AND and OR are where all their parts are.
"""

from collections.abc import Iterator

from local.cosmos.answers import compact
from local.cosmos.indexing import IndexingPolicy, leaves
from local.cosmos.query_functions import BUILT_IN
from local.cosmos.query_syntax import (
    Call,
    Comparison,
    Expression,
    Literal,
    Logical,
    Membership,
    Negation,
    Property,
)

type Steps = tuple[str | int, ...]


def is_served(condition: Expression, policy: IndexingPolicy) -> bool:
    """Whether an index decides a condition alone."""
    match condition:
        case Logical(_, operands):
            return all(is_served(operand, policy) for operand in operands)
        case Negation(operand):
            return is_served(operand, policy)
        case Call("ARRAY_CONTAINS", (Property(path), Literal(value), *_)):
            elements = (*index_path(path), "[]")
            return all(policy.covers(leaf) for leaf in leaves(value, elements))
        case _:
            decided = decided_path(condition)
            return decided is not None and policy.covers(index_path(decided))


def decided_path(condition: Expression) -> Steps | None:
    """The path of the one property that a condition compares with constants."""
    match condition:
        case Comparison(_, Property(path), Literal()) | Comparison(_, Literal(), Property(path)):
            return path
        case Membership(Property(path), choices) if all_literal(choices):
            return path
        case Call("ARRAY_CONTAINS", (Literal(), Property(path))):
            return path
        case Call(name, (Property(path), *rest)) if BUILT_IN[name].is_served and all_literal(rest):
            return path
        case _:
            return None


def needed_texts(condition: Expression) -> Iterator[str]:
    """What the JSON text of every item holds for which a served condition is true."""
    for step in decided_path(condition) or ():
        if isinstance(step, str):
            yield f"{compact(step)}:"
    match condition:
        case (
            Comparison("=", Property(), Literal(str(text)))
            | Comparison("=", Literal(str(text)), Property())
            | Call("ARRAY_CONTAINS", (Property(), Literal(str(text)), *_))
        ):
            yield compact(text)


def index_path(path: Steps) -> tuple[str, ...]:
    """A path as indexing policies write it, where every element is `[]`."""
    return tuple("[]" if isinstance(step, int) else step for step in path)


def all_literal(expressions: tuple[Expression, ...] | list[Expression]) -> bool:
    """Whether all are constants."""
    return all(isinstance(one, Literal) for one in expressions)

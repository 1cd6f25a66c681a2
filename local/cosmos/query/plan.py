"""Which part of a query SQLite answers, and which part an index of the container would serve.

The parts of the condition that speak of `id`, `_ts` or the partition key, and an ORDER BY of `id`,
become SQL over indexed columns; what remains is evaluated item by item. So "the newest id of one
partition" reads one row, however long the partition is. Of what remains, a condition that an index
serves rules out items without a look at them; there is no such index here, so SQLite looks for the
texts that the condition needs instead.

Which conditions an index serves: items they rule out need not be looked at, nor paid for.

A condition of a property and constants is served where the indexing policy covers the path: of an
array's elements, by `/path/[]/?`. AND and OR are where all their parts are.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from local.cosmos.answers import compact
from local.cosmos.items.containers import Container
from local.cosmos.items.indexing import IndexingPolicy, leaves
from local.cosmos.items.partitions import canonical
from local.cosmos.query.functions import BUILT_IN
from local.cosmos.query.syntax import (
    Call,
    Comparison,
    Expression,
    Literal,
    Logical,
    Membership,
    Negation,
    OrderKey,
    Property,
    Query,
)

type Steps = tuple[str | int, ...]

MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
HIGHEST_CHARACTER = "\U0010ffff"


@dataclass(slots=True)
class Plan:
    """The SQL half of a query, and what is left of its condition.

    `served` is left to an index, `scanned` to a look at the item. `is_ordered` tells whether SQL
    delivers the final order; if not, all rows must be sorted.
    """

    where: list[str] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    served: list[Expression] = field(default_factory=list)
    scanned: list[Expression] = field(default_factory=list)
    keys: str = "partition, id"
    is_ordered: bool = True
    is_descending: bool = False
    has_partition: bool = False

    def narrow(self, clause: str, *values: Any) -> None:
        """Add a condition that rows must meet."""
        self.where.append(clause)
        self.values.extend(values)


def plan_query(query: Query, container: Container, key: str | None) -> Plan:
    """Split a query; `key` is the partition the request is bound to, if it is bound to one."""
    plan = Plan()
    plan.narrow("container = ?", container.number)
    if key is not None:
        plan.narrow("partition = ?", key)
        plan.has_partition = True
    for conjunct in conjuncts(query.condition):
        if not translate(plan, conjunct, container):
            leave(plan, conjunct, container)
    plan_order(plan, query.order)
    return plan


def leave(plan: Plan, conjunct: Expression, container: Container) -> None:
    """Put what SQL cannot decide where it belongs."""
    if not is_served(conjunct, container.policy):
        plan.scanned.append(conjunct)
        return
    plan.served.append(conjunct)
    for text in needed_texts(conjunct):
        plan.narrow("instr(body, ?) > 0", text)


def conjuncts(condition: Expression | None) -> list[Expression]:
    """The operands of the outermost AND."""
    match condition:
        case None:
            return []
        case Logical("AND", operands):
            return [inner for operand in operands for inner in conjuncts(operand)]
        case _:
            return [condition]


def translate(plan: Plan, conjunct: Expression, container: Container) -> bool:
    """Turn one conjunct into SQL with exactly its meaning; False when that cannot be done."""
    match conjunct:
        case Comparison(operator, Property(path), Literal(value)):
            return translate_comparison(plan, operator, path, value, container)
        case Comparison(operator, Literal(value), Property(path)):
            return translate_comparison(plan, MIRRORED[operator], path, value, container)
        case Call("STARTSWITH", (Property(("id",)), Literal(str(prefix)))):
            plan.narrow("id >= ? AND id <= ?", prefix, prefix + HIGHEST_CHARACTER)
            return False  # the range is a little too wide at its end
        case Membership(Property(("id",)), choices) if all(map(is_text, choices)):
            texts = [choice.value for choice in choices if isinstance(choice, Literal)]
            plan.narrow(f"id IN ({', '.join('?' * len(texts))})", *texts)
            return True
        case _:
            return False


def translate_comparison(
    plan: Plan, operator: str, path: Steps, value: Any, container: Container
) -> bool:
    """A comparison of a property with a constant of the type the property has in every item."""
    if path == container.key_path.names and operator == "=" and is_key(value):
        plan.narrow("partition = ?", canonical(value))
        plan.has_partition = True
        return True
    if path == ("id",) and isinstance(value, str):
        plan.narrow(f"id {operator} ?", value)
        return True
    if path == ("_ts",) and is_seconds(value):
        plan.narrow(f"ts {operator} ?", value)
        return True
    return False


def plan_order(plan: Plan, order: tuple[OrderKey, ...]) -> None:
    """Let SQL order by id, or by nothing; anything else is sorted afterwards."""
    if len(order) == 1 and order[0].path == ("id",):
        plan.keys = "id, partition"
        plan.is_descending = order[0].is_descending
    elif order:
        plan.is_ordered = False


def is_text(expression: Expression) -> bool:
    """Whether it is a string constant."""
    return isinstance(expression, Literal) and isinstance(expression.value, str)


def is_seconds(value: Any) -> bool:
    """Whether a value is a number that SQLite can compare with a time."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53


def is_key(value: Any) -> bool:
    """Whether a value may be a partition key."""
    return not isinstance(value, dict | list)


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

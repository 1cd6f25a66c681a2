"""The part of a query that SQLite answers, and the part that the container's indexes would serve.

The parts of the condition that speak of `id`, `_ts` or the partition key, and an ORDER BY of `id`
or `_ts`, become SQL over indexed columns; what remains is evaluated item by item. So "the newest id
of one partition" reads one row, however long the partition is. An ORDER BY of a property that the
condition compares with a text is SQL as well: every item that is left has a text there, and SQLite
sorts ten thousand of them in a tenth of the time that it takes to parse the items.

Of what remains, a condition that an index serves rules out items that need not be looked at, nor be
charged. A condition of a property and constants is served where the indexing policy covers the
path: of an array's elements, by `/path/[]/?`. AND and OR are where all their parts are. There is no
such index here, so SQLite looks for the texts that the condition needs instead.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from local.cosmos.items.containers import Container
from local.cosmos.items.indexing import IndexingPolicy, IndexPath, list_leaves
from local.cosmos.items.partitions import canonicalize
from local.cosmos.responses import write_json
from local.cosmos.sql.functions import BUILT_IN
from local.cosmos.sql.syntax import (
    Comparison,
    Expression,
    FunctionCall,
    Literal,
    Logical,
    Membership,
    Negation,
    PropertyPath,
    Query,
)
from local.cosmos.sql.values import is_number

type PathSteps = tuple[str | int, ...]

MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
# The columns of what every item has, and of one type.
ORDERED: dict[PathSteps, str] = {("id",): "id", ("_ts",): "ts"}
HIGHEST_CHARACTER = "\U0010ffff"
# Looking for more texts in every item costs more than it saves, and SQLite ends at a thousand.
NEEDED_TEXTS_MAX = 50


@dataclass(slots=True)
class QueryPlan:
    """The SQL half of a query, and what is left of its condition.

    `served` is left to an index, `scanned` to a look at the item. `is_ordered` tells whether SQL
    delivers the final order; if not, all rows must be sorted.
    """

    where: list[str] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    served: list[Expression] = field(default_factory=list)
    scanned: list[Expression] = field(default_factory=list)
    keys: tuple[str, ...] = ("birth",)  # without ORDER BY, as items were created
    is_ordered: bool = True
    is_descending: bool = False
    has_partition: bool = False

    @property
    def time_column(self) -> str:
        """The plus keeps SQLite from a walk through the container where a partition is known."""
        return "+ts" if self.has_partition else "ts"

    def narrow(self, clause: str, *values: Any) -> None:
        self.where.append(clause)
        self.values.extend(values)


def plan_query(query: Query, container: Container, key: str | None) -> QueryPlan:
    """Split a query; `key` is the partition the request is bound to, if it is bound to one."""
    plan = QueryPlan()
    plan.narrow("container = ?", container.number)
    if key is not None:
        plan.narrow("partition = ?", key)
        plan.has_partition = True
    for conjunct in list_conjuncts(query.condition):
        if translate(plan, conjunct, container):
            continue
        if is_served(conjunct, container.policy):
            plan.served.append(conjunct)
            clause, texts = write_needed_texts(conjunct)
            if clause:
                plan.narrow(clause, *texts)
        else:
            plan.scanned.append(conjunct)
    if len(query.order) == 1:
        path, plan.is_descending = query.order[0].path, query.order[0].is_descending
        if column := ORDERED.get(path):
            plan.keys = (plan.time_column if column == "ts" else column, "birth")
            return plan
        if order_by_text(plan, path):
            return plan
    plan.is_ordered = not query.order
    return plan


def order_by_text(plan: QueryPlan, path: PathSteps) -> bool:
    """Let SQL sort by a property, where it can hold its name, and each item left has a text there.

    What the condition compares it with is SQL as well.
    """
    name = path[0]
    if len(path) > 1 or not isinstance(name, str) or not name.isidentifier():
        return False
    nul = write_json("\0").strip('"')
    whole = f"WHEN instr(body, '{nul}') THEN text_at(body, '{name}')"
    text = f"CASE {whole} ELSE json_extract(body, '$.{name}') END"
    is_text = False
    for condition in plan.served:
        match condition:
            case Comparison(operator, PropertyPath(found), Literal(str(value))) if (
                found == path and operator != "!="
            ):
                plan.narrow(f"{text} {operator} ?", value)
                is_text = True
            case FunctionCall("STARTSWITH", (PropertyPath(found), Literal(str(value)))) if (
                found == path
            ):
                plan.narrow(f"{text} BETWEEN ? AND ?", value, value + HIGHEST_CHARACTER)
                is_text = True
            case _:
                pass
    if is_text:
        plan.keys = (text, "birth")
    return is_text


def list_conjuncts(condition: Expression | None) -> list[Expression]:
    match condition:
        case None:
            return []
        case Logical("AND", operands):
            return [inner for operand in operands for inner in list_conjuncts(operand)]
        case _:
            return [condition]


def translate(plan: QueryPlan, conjunct: Expression, container: Container) -> bool:
    """Turn one conjunct into SQL with exactly its meaning; False when that cannot be done."""
    match conjunct:
        case Comparison(operator, PropertyPath(path), Literal(value)):
            return translate_comparison(plan, operator, path, value, container)
        case Comparison(operator, Literal(value), PropertyPath(path)):
            return translate_comparison(plan, MIRRORED[operator], path, value, container)
        case FunctionCall("STARTSWITH", (PropertyPath(("id",)), Literal(str(prefix)))):
            plan.narrow("id >= ? AND id <= ?", prefix, prefix + HIGHEST_CHARACTER)
            return False  # the range is a little too wide at its end
        case Membership(PropertyPath(("id",)), choices):
            texts = [choice.value for choice in choices if isinstance(choice, Literal)]
            if len(texts) < len(choices) or not all(isinstance(text, str) for text in texts):
                return False
            plan.narrow(f"id IN ({', '.join('?' * len(texts))})", *texts)
            return True
        case _:
            return False


def translate_comparison(
    plan: QueryPlan, operator: str, path: PathSteps, value: Any, container: Container
) -> bool:
    """A comparison of a property with a constant of the type the property has in every item."""
    is_key = path == container.key_path.names and not isinstance(value, dict | list)
    if is_key and operator == "=":
        plan.narrow("partition = ?", canonicalize(value))
        plan.has_partition = True
    elif path == ("id",) and isinstance(value, str):
        plan.narrow(f"id {operator} ?", value)
    elif path == ("_ts",) and is_number(value) and abs(value) < 2**53:  # as SQLite compares too
        plan.narrow(f"{plan.time_column} {operator} ?", value)
    else:
        return False
    return True


def is_served(condition: Expression, policy: IndexingPolicy) -> bool:
    """Return whether an index decides a condition alone."""
    paths = find_index_paths(condition)
    return paths is not None and all(policy.covers(path) for path in paths)


def find_index_paths(condition: Expression) -> set[IndexPath] | None:
    """The paths whose indexes together decide a condition; None where none could."""
    match condition:
        case Logical(_, operands):
            paths: set[IndexPath] = set()
            for operand in operands:
                found = find_index_paths(operand)
                if found is None:
                    return None
                paths |= found
            return paths
        case Negation(operand):
            return find_index_paths(operand)
        case FunctionCall("ARRAY_CONTAINS", (PropertyPath(path), Literal(value), *_)):
            return set(list_leaves(value, (*write_index_path(path), "[]")))
        case _:
            path_or_none = find_decided_path(condition)
            return None if path_or_none is None else {write_index_path(path_or_none)}


def find_decided_path(condition: Expression) -> PathSteps | None:
    """The path of the one property that a condition compares with constants."""
    match condition:
        case Comparison(_, PropertyPath(path), Literal()):
            return path
        case Comparison(_, Literal(), PropertyPath(path)):
            return path
        case Membership(PropertyPath(path), choices) if are_literals(choices):
            return path
        case FunctionCall("ARRAY_CONTAINS", (Literal(), PropertyPath(path))):
            return path
        case FunctionCall(name, (PropertyPath(path), *rest)) if BUILT_IN[
            name
        ].is_served and are_literals(rest):
            return path
        case _:
            return None


def write_needed_texts(condition: Expression) -> tuple[str, list[str]]:
    """SQL that holds for every item that meets a served condition, and the texts that it looks for.

    It is empty where nothing is known of such items: an OR is of use only where each part is. It is
    empty, too, where there would be too many texts.
    """
    match condition:
        case Logical(operator, operands):
            parts = [write_needed_texts(operand) for operand in operands]
            clauses = [clause for clause, _ in parts if clause]
            texts = [text for _, several in parts for text in several]
            is_known = operator == "AND" or len(clauses) == len(parts)
            if not is_known or len(texts) > NEEDED_TEXTS_MAX:
                return "", []
        case _:
            operator, texts = "AND", list(list_needed_texts(condition))
            clauses = ["instr(body, ?) > 0"] * len(texts)
    return f"({f' {operator} '.join(clauses)})" if clauses else "", texts


def list_needed_texts(condition: Expression) -> Iterator[str]:
    """Yield what the JSON text of every item holds for which a served condition is true."""
    for step in find_decided_path(condition) or ():
        if isinstance(step, str):
            yield f"{write_json(step)}:"
    match condition:
        case (
            Comparison("=", PropertyPath(), Literal(str(text)))
            | Comparison("=", Literal(str(text)), PropertyPath())
            | FunctionCall("ARRAY_CONTAINS", (PropertyPath(), Literal(str(text)), *_))
        ):
            yield write_json(text)
        case FunctionCall("ARRAY_CONTAINS", (PropertyPath(), Literal(dict(members)), *_)):
            yield from (write_json(one) for one in members.values() if isinstance(one, str))


def write_index_path(path: PathSteps) -> tuple[str, ...]:
    """A path as indexing policies write it, where every element is `[]`."""
    return tuple("[]" if isinstance(step, int) else step for step in path)


def are_literals(expressions: Iterable[Expression]) -> bool:
    return all(isinstance(one, Literal) for one in expressions)

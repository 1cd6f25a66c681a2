"""The way from query text to a `Query`, by the grammar in `grammar.lark`.

What lies outside the grammar is refused with a 400 that names the construct and where it stands.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from math import isfinite
from typing import Any

from lark import Lark, Token, Tree, UnexpectedCharacters, UnexpectedToken, v_args
from lark.visitors import Interpreter

from local.cosmos.exact_json import EXACT_MAX
from local.cosmos.responses import BadRequest, NotOffered, write_json
from local.cosmos.sql.functions import AGGREGATES, FUNCTIONS
from local.cosmos.sql.syntax import (
    Aggregate,
    Arithmetic,
    ArrayOf,
    Comparison,
    Expression,
    FunctionCall,
    Literal,
    Logical,
    Membership,
    Negation,
    ObjectOf,
    OrderKey,
    PropertyPath,
    Query,
    QueryTexts,
)
from local.cosmos.sql.values import is_number

type Part = Tree[Token]  # of a query, by the rule of the grammar that it follows

PARSED_MAX = 256
DEPTH_MAX = 64
CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}
REQUIRED = ("SELECT", "FROM", "WHERE", "BY", "LIMIT")  # words that an error says are missing


def parse_query(text: str, parameters: Mapping[str, Any]) -> Query:
    """Parse; every parameter is replaced by its value. A refusal says what is not offered."""
    if not parameters:
        parsed: Query = parse_constants(text, "query")
    else:
        parsed = QueryBuilder(text, parameters).visit(parse_tree(text, "query"))
    return parsed


def parse_filter(text: str) -> Expression:
    """Parse the condition of a patch: `FROM c WHERE ...`, without parameters."""
    condition: Expression = parse_constants(text, "patch_condition")
    return condition


@lru_cache(maxsize=PARSED_MAX)
def parse_constants(text: str, start: str) -> Any:
    """Parse a text without parameters, which means the same every time."""
    return QueryBuilder(text, {}).visit(parse_tree(text, start))


@lru_cache(maxsize=PARSED_MAX)
def parse_tree(text: str, start: str) -> Part:
    """The syntax tree of a text, in which parameters are still names.

    A refusal names the first token that the grammar has no place for.
    """
    try:
        return load_grammar().parse(text, start=start)
    except UnexpectedCharacters as error:
        raise BadRequest(f"syntax error at {error.pos_in_stream}: {error.char!r}") from error
    except UnexpectedToken as error:
        is_at_end = error.token.type == "$END"
        found = "the end of the query" if is_at_end else str(error.token)
        position = len(text) if is_at_end else error.token.start_pos
        missing = [word for word in REQUIRED if f"_{word}" in error.accepts]
        if missing and "$END" not in error.accepts:
            message = f"syntax error at {position}: {missing[0]} expected, not {found}"
            raise BadRequest(message) from error
        raise NotOffered(f"{found} at position {position} of a query") from error


@cache
def load_grammar() -> Lark:
    """Build the parser, which takes a moment, when the first query comes."""
    return Lark.open(
        "grammar.lark",
        rel_to=__file__,
        parser="lalr",
        start=["query", "patch_condition"],
        propagate_positions=True,
        lexer_callbacks={
            "FUNCTION": check_function,
            "OTHER_CLAUSE": refuse_token,
            "OTHER_OPERATOR": refuse_token,
            "OTHER_SOURCE": refuse_source,
            "SUBQUERY": refuse_token,
            "UNIQUE": refuse_token,
        },
    )


def check_function(token: Token) -> Token:
    """Refuse an unknown function at once: what stands between its parentheses may be no SQL."""
    if "." in token:  # udf.NAME
        return refuse_token(token)
    name = token.upper()
    if name not in FUNCTIONS and name not in AGGREGATES:
        raise NotOffered(f"the function {name} (at position {token.start_pos} of a query)")
    return token


def refuse_token(token: Token) -> Token:
    """Refuse a word for which the grammar has a place, but the local service no meaning."""
    raise NotOffered(f"{token} at position {token.start_pos} of a query")


def refuse_source(_token: Token) -> Token:
    """Refuse what goes on after the name of the container."""
    raise NotOffered("a FROM clause over something other than the container")


@v_args(inline=True)
class QueryBuilder(Interpreter[Token, Any]):
    """Makes a `Query` of a syntax tree. Each method takes the children of the rule of its name.

    It goes from the top down, because the meaning of what is inside depends on what is around: FROM
    gives the name that stands for an item, and aggregates are only allowed in the selection.
    """

    def __init__(self, text: str, parameters: Mapping[str, Any]) -> None:
        super().__init__()
        self._text = text
        self._parameters = parameters
        self._alias = ""
        self._depth = 0
        self._aggregates: list[Aggregate] = []
        self._aggregates_allowed = False
        self._has_bare_property = False  # a property outside of the aggregates

    def query(
        self,
        distinct: Token | None,
        top: Part | None,
        selection: Part,
        source: Part,
        condition: Part | None,
        order: Part | None,
        offset: Part | None,
        limit: Part | None,
    ) -> Query:
        self.visit(source)
        self._aggregates_allowed = True
        shown, value_text = self.visit(selection)
        self._aggregates_allowed = False
        if self._aggregates and self._has_bare_property:
            raise NotOffered("a property beside an aggregate, which needs GROUP BY")
        order_keys, order_texts = self.visit(order) if order else ((), ())
        if top and limit:
            raise BadRequest("TOP and OFFSET LIMIT exclude each other")
        if self._aggregates and (distinct or top or limit):
            what = "an aggregate together with DISTINCT, TOP or OFFSET LIMIT"
            raise NotOffered(what)
        if self._aggregates:  # there is one result, which has no order
            order_keys, order_texts = (), ()
        condition_text = self._quote(condition) if condition else ""
        source_text = self._quote(source)
        return Query(
            shown,
            QueryTexts(self._alias, source_text, value_text, condition_text, order_texts),
            is_value=selection.data == "value",
            is_distinct=distinct is not None,
            condition=self._visit_expression(condition) if condition else None,
            order=order_keys,
            top=self.visit(top) if top else None,
            offset=self.visit(offset) if offset else 0,
            limit=self.visit(limit) if limit else None,
            aggregates=tuple(self._aggregates),
        )

    def patch_condition(self, source: Part, condition: Part) -> Expression:
        self.visit(source)
        return self._visit_expression(condition)

    def source(self, container: Token, alias: Token | None) -> None:
        self._alias = str(alias or container)

    def whole_items(self) -> tuple[Expression, str]:
        return PropertyPath(()), self._alias

    def value(self, expression: Part) -> tuple[Expression, str]:
        return self._visit_expression(expression), self._quote(expression)

    def fields(self, *fields: Part) -> tuple[Expression, str]:
        members, texts = [], []
        for ordinal, field in enumerate(fields, start=1):
            name, expression, text = self.visit(field)
            members.append((name or f"${ordinal}", expression))
            texts.append(f"{write_json(members[-1][0])}: {text}")
        return ObjectOf(tuple(members)), f"{{{', '.join(texts)}}}"

    def field(self, node: Part, alias: Token | None) -> tuple[str | None, Expression, str]:
        expression = self._visit_expression(node)
        name = None if alias is None else str(alias)
        if name is None and isinstance(expression, PropertyPath):
            last = expression.path[-1] if expression.path else self._alias
            name = last if isinstance(last, str) else None
        return name, expression, self._quote(node)

    def order(self, *keys: Part) -> tuple[tuple[OrderKey, ...], tuple[str, ...]]:
        visited = [self.visit(key) for key in keys]
        return tuple(key for key, _ in visited), tuple(text for _, text in visited)

    def order_key(self, node: Part, direction: Token | None) -> tuple[OrderKey, str]:
        expression = self._visit_expression(node)
        path = expression.path if isinstance(expression, PropertyPath) else ()
        names = tuple(step for step in path if isinstance(step, str))
        if not names or len(names) < len(path):
            raise NotOffered("ORDER BY of something other than a property path")
        is_descending = direction is not None and direction.upper() == "DESC"
        return OrderKey(names, is_descending), self._quote(node)

    def count(self, token: Token) -> int:
        value = self.constant(token)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise BadRequest("TOP, OFFSET and LIMIT take a whole number of zero or more")
        return value

    def _visit_expression(self, node: Part) -> Expression:
        """An expression that may stand alone; its own parts bind more strongly."""
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise BadRequest(f"a query may nest {DEPTH_MAX} parentheses at most")
        expression: Expression = self.visit(node)
        self._depth -= 1
        return expression

    def _visit_all(self, nodes: Iterable[Part]) -> tuple[Expression, ...]:
        return tuple(self._visit_expression(node) for node in nodes)

    def default(self, tested: Part, other: Part) -> Expression:
        found = self.visit(tested)
        is_defined = FunctionCall("IS_DEFINED", (found,))
        return FunctionCall("IIF", (is_defined, found, self._visit_expression(other)))

    def choice(self, test: Part, chosen: Part, other: Part) -> Expression:
        return FunctionCall("IIF", (self.visit(test), *self._visit_all((chosen, other))))

    def disjunction(self, *operands: Part) -> Expression:
        return Logical("OR", tuple(self.visit(operand) for operand in operands))

    def conjunction(self, *operands: Part) -> Expression:
        return Logical("AND", tuple(self.visit(operand) for operand in operands))

    def negation(self, *children: Any) -> Expression:
        *negations, relation = children
        return negate(self.visit(relation), is_negated=len(negations) % 2 == 1)

    def comparison(self, left: Part, operator: Token, right: Part) -> Expression:
        name = "!=" if operator == "<>" else str(operator)
        return Comparison(name, self.visit(left), self.visit(right))

    def membership(
        self, operand: Part, negation: Token | None, word: Token, *choices: Part
    ) -> Expression:
        if not choices:
            raise NotOffered(f"IN without values at position {word.start_pos} of a query")
        found = Membership(self.visit(operand), self._visit_all(choices))
        return negate(found, is_negated=negation is not None)

    def interval(
        self, operand: Part, negation: Token | None, lowest: Part, highest: Part
    ) -> Expression:
        value = self.visit(operand)
        above = Comparison(">=", value, self.visit(lowest))
        below = Comparison("<=", value, self.visit(highest))
        return negate(Logical("AND", (above, below)), is_negated=negation is not None)

    def pattern(
        self, operand: Part, negation: Token | None, pattern: Part, escape: Part | None
    ) -> Expression:
        nodes = (operand, pattern) if escape is None else (operand, pattern, escape)
        found = FunctionCall("LIKE", tuple(self.visit(node) for node in nodes))
        return negate(found, is_negated=negation is not None)

    def additive(self, first: Part, *rest: Any) -> Expression:
        found: Expression = self.visit(first)
        for operator, operand in zip(rest[::2], rest[1::2], strict=True):
            found = Arithmetic(str(operator), found, self.visit(operand))
        return found

    multiplicative = additive

    def unary(self, *children: Any) -> Expression:
        *signs, node = children
        operand: Expression = self.visit(node)
        if signs.count("-") % 2 == 0:
            return operand
        if isinstance(operand, Literal) and is_number(operand.value):
            return Literal(-operand.value)
        return Arithmetic("-", Literal(0), operand)

    def parenthesis(self, inner: Part) -> Expression:
        return self._visit_expression(inner)

    def literal(self, constant: Part) -> Expression:
        return Literal(self.visit(constant))

    def property_path(self, name: Token, *steps: Part) -> Expression:
        if name != self._alias:
            refuse_token(name)
        self._has_bare_property = True
        return PropertyPath(tuple(self.visit(step) for step in steps))

    def step(self, step: Token | Part) -> str | int:
        if isinstance(step, Token):
            return str(step)
        value = self.visit(step)
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise BadRequest(f"syntax error at {step.meta.end_pos}: a name or index expected")
        return value

    def call(self, function: Token, *arguments: Part) -> Expression:
        name = function.upper()
        if name in AGGREGATES:
            return self._visit_aggregate(function, arguments)
        if len(arguments) not in FUNCTIONS[name].counts:
            raise NotOffered(f"{name} with {len(arguments)} arguments")
        return FunctionCall(name, self._visit_all(arguments))

    def _visit_aggregate(self, function: Token, arguments: tuple[Part, ...]) -> Aggregate:
        name = function.upper()
        if not self._aggregates_allowed:
            position = function.start_pos
            raise NotOffered(f"{name} in this place (at position {position} of a query)")
        if len(arguments) != 1:
            raise NotOffered(f"{name} with {len(arguments)} arguments")
        self._aggregates_allowed, had_bare_property = False, self._has_bare_property
        argument = self._visit_expression(arguments[0])
        self._aggregates_allowed, self._has_bare_property = True, had_bare_property
        found = Aggregate(name, argument, self._quote(arguments[0]), len(self._aggregates))
        self._aggregates.append(found)
        return found

    def array(self, *nodes: Part) -> Expression:
        elements = self._visit_all(nodes)
        constants = [one.value for one in elements if isinstance(one, Literal)]
        return Literal(constants) if len(constants) == len(elements) else ArrayOf(elements)

    def object(self, *nodes: Part) -> Expression:
        members: list[tuple[str, Expression]] = [self.visit(node) for node in nodes if node]
        constants = [(name, one.value) for name, one in members if isinstance(one, Literal)]
        return (
            Literal(dict(constants)) if len(constants) == len(members) else ObjectOf(tuple(members))
        )

    def member(self, name: Token, value: Part) -> tuple[str, Expression]:
        return read_string(name), self._visit_expression(value)

    def constant(self, token: Token) -> Any:
        match token.type:
            case "NUMBER":
                return read_number(token)
            case "STRING":
                return read_string(token)
            case "CONSTANT":
                return CONSTANTS[token.upper()]
        if token not in self._parameters:
            raise BadRequest(f"the query uses {token} but no such parameter was sent")
        return self._parameters[token]

    def _quote(self, node: Part) -> str:
        """The text of a part as it was written, for a query that is made from this one."""
        return self._text[node.meta.start_pos : node.meta.end_pos]


def negate(condition: Expression, *, is_negated: bool) -> Expression:
    return Negation(condition) if is_negated else condition


def read_number(text: str) -> int | float:
    """The value of a number, which a double must be able to hold."""
    value = float(text)
    if not isfinite(value):
        raise BadRequest(f"the number {text[:40]} is too large")
    return int(text) if text.isdigit() and value < EXACT_MAX else value


def read_string(text: str) -> str:
    """The value of a string; escapes are those of JSON, and the quote may be single."""
    if text[0] == "'":
        text = '"' + text[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
    try:
        value: str = json.loads(text, strict=False)
    except ValueError as error:
        raise BadRequest(f"the string literal {text} has an unknown escape") from error
    return value

"""The part of the parser that reads expressions, from the weakest binding to the strongest."""

from collections.abc import Mapping
from typing import Any

from local.cosmos.answers import Refusal, unsupported
from local.cosmos.query.cursor import Cursor
from local.cosmos.query.functions import FUNCTIONS
from local.cosmos.query.syntax import (
    Aggregate,
    Arithmetic,
    ArrayOf,
    Call,
    Choice,
    Comparison,
    Expression,
    Literal,
    Logical,
    Membership,
    Negation,
    ObjectOf,
    Property,
)
from local.cosmos.query.tokens import Kind, Token, number_value, string_value

AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX")
CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}
COMPARISONS = ("=", "!=", "<>", "<", "<=", ">", ">=")
SUMS = ("+", "-", "||")
PRODUCTS = ("*", "/", "%")
DEPTH_MAX = 64


class ExpressionParser(Cursor):
    """The grammar of expressions; parameters are replaced by their values.

    Where `aggregates_allowed`, they are read into `aggregates`; `has_bare_property` tells that a
    property was read outside of them.
    """

    def __init__(self, text: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(text)
        self.alias = alias_of(self.tokens)
        self.aggregates: list[Aggregate] = []
        self.aggregates_allowed = False
        self.has_bare_property = False
        self._parameters = parameters
        self._depth = 0

    def expression(self) -> Expression:
        """Any expression: `a ?? b` and `a ? b : c` bind weakest."""
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise Refusal(400, f"a query may nest {DEPTH_MAX} parentheses at most")
        found = self._disjunction()
        if self.take_mark("??"):
            found = Choice(Call("IS_DEFINED", (found,)), found, self.expression())
        elif self.take_mark("?"):
            chosen = self.expression()
            self.expect_mark(":")
            found = Choice(found, chosen, self.expression())
        self._depth -= 1
        return found

    def _disjunction(self) -> Expression:
        operands = [self._conjunction()]
        while self.take_word("OR"):
            operands.append(self._conjunction())
        return operands[0] if len(operands) == 1 else Logical("OR", tuple(operands))

    def _conjunction(self) -> Expression:
        operands = [self._negation()]
        while self.take_word("AND"):
            operands.append(self._negation())
        return operands[0] if len(operands) == 1 else Logical("AND", tuple(operands))

    def _negation(self) -> Expression:
        is_negated = False
        while self.take_word("NOT"):
            is_negated = not is_negated
        relation = self._relation()
        return Negation(relation) if is_negated else relation

    def _relation(self) -> Expression:
        left = self._sum()
        if self.token.is_mark(*COMPARISONS):
            operator = self.advance().text
            return Comparison("!=" if operator == "<>" else operator, left, self._sum())
        is_negated = self.take_word("NOT")
        found = self._word_relation(left)
        if found is None and is_negated:
            raise self.refusal()
        return Negation(found) if found and is_negated else found or left

    def _word_relation(self, left: Expression) -> Expression | None:
        if self.token.is_word("IN"):
            word = self.advance()
            choices = self._arguments()
            if not choices:
                raise unsupported(f"IN without values at position {word.position} of a query")
            return Membership(left, choices)
        if self.take_word("BETWEEN"):
            lowest = self._sum()
            self.expect_word("AND")
            bounds = Comparison(">=", left, lowest), Comparison("<=", left, self._sum())
            return Logical("AND", bounds)
        if self.take_word("LIKE"):
            pattern = self._sum()
            escape = (self._sum(),) if self.take_word("ESCAPE") else ()
            return Call("LIKE", (left, pattern, *escape))
        return None

    def _sum(self) -> Expression:
        left = self._product()
        while self.token.is_mark(*SUMS):
            left = Arithmetic(self.advance().text, left, self._product())
        return left

    def _product(self) -> Expression:
        left = self._signed()
        while self.token.is_mark(*PRODUCTS):
            left = Arithmetic(self.advance().text, left, self._signed())
        return left

    def _signed(self) -> Expression:
        is_negative = False
        while self.token.is_mark("-", "+"):
            is_negative ^= self.advance().text == "-"
        operand = self._operand()
        match operand:
            case _ if not is_negative:
                return operand
            case Literal(int() | float() as number) if not isinstance(number, bool):
                return Literal(-number)
            case _:
                return Arithmetic("-", Literal(0), operand)

    def _operand(self) -> Expression:
        if self.take_mark("("):
            if self.token.is_word("SELECT"):
                raise self.refusal()
            inner = self.expression()
            self.expect_mark(")")
            return inner
        if self.take_mark("["):
            return array_of(self._list_until("]"))
        if self.take_mark("{"):
            return self._object()
        if self.token.kind is Kind.WORD and not self.token.is_word(*CONSTANTS):
            return self._named()
        return Literal(self.constant())

    def _object(self) -> Expression:
        members: list[tuple[str, Expression]] = []
        while not self.take_mark("}"):
            if members:
                self.expect_mark(",")
            if self.token.kind is not Kind.STRING:
                raise self.refusal()
            name = string_value(self.advance().text)
            self.expect_mark(":")
            members.append((name, self.expression()))
        return object_of(tuple(members))

    def constant(self) -> Any:
        """A literal or a parameter, as its value."""
        token = self.token
        if token.kind is Kind.NUMBER:
            return number_value(self.advance().text)
        if token.kind is Kind.STRING:
            return string_value(self.advance().text)
        if token.kind is Kind.PARAMETER:
            return self._parameter()
        if token.is_word(*CONSTANTS):
            return CONSTANTS[self.advance().text.upper()]
        raise self.refusal()

    def _parameter(self) -> Any:
        name = self.advance().text
        if name not in self._parameters:
            raise Refusal(400, f"the query uses {name} but no such parameter was sent")
        return self._parameters[name]

    def _named(self) -> Expression:
        token = self.token
        name = self.expect_name()
        if self.token.is_mark("("):
            return self._call(name.upper(), token.position)
        if name != self.alias:
            raise unsupported(f"{name} at position {token.position} of a query")
        path: list[str | int] = []
        while self.token.is_mark(".", "["):
            path.append(self._step())
        self.has_bare_property = True
        return Property(tuple(path))

    def _step(self) -> str | int:
        if self.take_mark("."):
            return self.expect_name()
        self.expect_mark("[")
        step = self.constant()
        if isinstance(step, bool) or not isinstance(step, str | int):
            raise Refusal(400, f"syntax error at {self.token.position}: a name or index expected")
        self.expect_mark("]")
        return step

    def _call(self, name: str, position: int) -> Expression:
        if name in AGGREGATES:
            return self._aggregate(name, position)
        if name not in FUNCTIONS:
            raise unsupported(f"the function {name} (at position {position} of a query)")
        arguments = self._arguments()
        if len(arguments) not in FUNCTIONS[name].counts:
            raise unsupported(f"{name} with {len(arguments)} arguments")
        return Call(name, arguments)

    def _aggregate(self, name: str, position: int) -> Expression:
        if not self.aggregates_allowed:
            raise unsupported(f"{name} in this place (at position {position} of a query)")
        self.aggregates_allowed, had_bare_property = False, self.has_bare_property
        start = self.token.position + 1
        arguments = self._arguments()
        if len(arguments) != 1:
            raise unsupported(f"{name} with {len(arguments)} arguments")
        text = self.text_since(start).removesuffix(")").strip()
        self.aggregates.append(Aggregate(name, arguments[0], text, len(self.aggregates)))
        self.aggregates_allowed, self.has_bare_property = True, had_bare_property
        return self.aggregates[-1]

    def _arguments(self) -> tuple[Expression, ...]:
        self.expect_mark("(")
        if self.token.is_word("SELECT", "DISTINCT"):
            raise self.refusal()
        return self._list_until(")")

    def _list_until(self, end: str) -> tuple[Expression, ...]:
        elements: list[Expression] = []
        while not self.take_mark(end):
            if elements:
                self.expect_mark(",")
            elements.append(self.expression())
        return tuple(elements)


def array_of(elements: tuple[Expression, ...]) -> Expression:
    """An array, which is a constant if all its elements are."""
    constants = [one for one in elements if isinstance(one, Literal)]
    if len(constants) < len(elements):
        return ArrayOf(elements)
    return Literal([one.value for one in constants])


def object_of(members: tuple[tuple[str, Expression], ...]) -> Expression:
    """An object, which is a constant if all its members are."""
    constants = [(name, one) for name, one in members if isinstance(one, Literal)]
    if len(constants) < len(members):
        return ObjectOf(members)
    return Literal({name: one.value for name, one in constants})


CLAUSES = ("WHERE", "ORDER", "OFFSET", "JOIN", "IN", "GROUP")


def alias_of(tokens: tuple[Token, ...]) -> str:
    """The name that stands for an item: needed before FROM is reached, for SELECT comes first."""
    starts = [i for i, token in enumerate(tokens) if token.is_word("FROM")]
    if not starts:
        raise Refusal(400, "a query needs a FROM clause")
    after = tokens[starts[0] + 1 : starts[0] + 4] + tokens[-1:] * 3
    if after[1].is_word("AS"):
        return after[2].text
    if after[1].kind is Kind.WORD and not after[1].is_word(*CLAUSES):
        return after[1].text
    return after[0].text

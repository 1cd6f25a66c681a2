"""From query text to a `Query`, by recursive descent.

The grammar is a part of Cosmos SQL; what lies outside it is refused with a 400 that names the
construct and where it stands.
"""

from collections.abc import Mapping
from typing import Any

from local.cosmos.answers import Refusal, unsupported
from local.cosmos.query_conditions import AGGREGATES, ConditionParser
from local.cosmos.query_syntax import (
    Call,
    Expression,
    OrderKey,
    Property,
    Query,
    SelectAll,
    SelectCount,
    SelectFields,
    Selection,
    SelectValue,
)
from local.cosmos.query_tokens import Kind, tokenize


def parse_query(text: str, parameters: Mapping[str, Any]) -> Query:
    """Parse; every parameter is replaced by its value."""
    return QueryParser(text, parameters).query()


class QueryParser(ConditionParser):
    """The clauses around the conditions."""

    def __init__(self, text: str, parameters: Mapping[str, Any]) -> None:
        tokens = tokenize(text)
        super().__init__(tokens, parameters, alias_of(text))

    def query(self) -> Query:
        """SELECT [TOP n] selection FROM ... [WHERE] [ORDER BY] [OFFSET LIMIT]."""
        self.expect_word("SELECT")
        top = self._top()
        selection = self._selection()
        self._source()
        condition = self.condition() if self.take_word("WHERE") else None
        self._refuse_words("GROUP")
        order = self._order()
        offset, limit = self._offset_limit()
        if self.token.kind is not Kind.END:
            raise self.refusal()
        if top is not None and limit is not None:
            raise Refusal(400, "TOP and OFFSET LIMIT exclude each other")
        if isinstance(selection, SelectCount) and (order or limit is not None or top is not None):
            raise unsupported("COUNT together with TOP, ORDER BY or OFFSET LIMIT")
        return Query(selection, condition, order, offset, limit if top is None else top)

    def _top(self) -> int | None:
        self._refuse_words("DISTINCT")
        return self._count() if self.take_word("TOP") else None

    def _selection(self) -> Selection:
        if self.take_mark("*"):
            return SelectAll()
        if self.take_word("VALUE"):
            return value_selection(self.operand())
        fields = [self._field(1)]
        while self.take_mark(","):
            fields.append(self._field(len(fields) + 1))
        return SelectFields(tuple(fields))

    def _field(self, ordinal: int) -> tuple[str, Expression]:
        expression = self.operand()
        if isinstance(expression, Call) and expression.name in AGGREGATES:
            raise unsupported(f"{expression.name} without VALUE")
        if self.take_word("AS"):
            return self.expect_name(), expression
        if isinstance(expression, Property) and expression.path:
            return expression.path[-1], expression
        return f"${ordinal}", expression

    def _source(self) -> None:
        self.expect_word("FROM")
        self.expect_name()
        has_alias = self.token.kind is Kind.WORD and not self.token.is_word(*CLAUSES)
        if self.take_word("AS") or has_alias:
            self.expect_name()
        self._refuse_words("JOIN", "IN")
        if self.token.is_mark(".", "[", ","):
            raise unsupported("a FROM clause over something other than the container")

    def _order(self) -> tuple[OrderKey, ...]:
        if not self.take_word("ORDER"):
            return ()
        if self.take_word("RANK"):
            raise unsupported("ORDER BY RANK")
        self.expect_word("BY")
        keys = [self._order_key()]
        while self.take_mark(","):
            keys.append(self._order_key())
        return tuple(keys)

    def _order_key(self) -> OrderKey:
        expression = self.operand()
        if not isinstance(expression, Property) or not expression.path:
            raise unsupported("ORDER BY of something other than a property path")
        is_descending = self.take_word("DESC")
        if not is_descending:
            self.take_word("ASC")
        return OrderKey(expression.path, is_descending)

    def _offset_limit(self) -> tuple[int, int | None]:
        if not self.take_word("OFFSET"):
            return 0, None
        offset = self._count()
        self.expect_word("LIMIT")
        return offset, self._count()

    def _count(self) -> int:
        value = self.constant()
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise Refusal(400, "TOP, OFFSET and LIMIT take a whole number of zero or more")
        return value

    def _refuse_words(self, *words: str) -> None:
        if self.token.is_word(*words):
            raise self.refusal()


CLAUSES = ("WHERE", "ORDER", "OFFSET", "JOIN", "IN", "GROUP")


def value_selection(expression: Expression) -> Selection:
    """SELECT VALUE of an aggregate, or of an ordinary expression."""
    match expression:
        case Call("COUNT", (argument,)):
            return SelectCount(argument)
        case Call(name, _) if name in AGGREGATES:
            raise unsupported(f"the aggregate {name}")
        case _:
            return SelectValue(expression)


def alias_of(text: str) -> str:
    """The name that stands for an item: needed before FROM is reached, for SELECT comes first."""
    tokens = tokenize(text)
    starts = [i for i, token in enumerate(tokens) if token.is_word("FROM")]
    if not starts:
        raise Refusal(400, "a query needs a FROM clause")
    after = tokens[starts[0] + 1 : starts[0] + 4] + tokens[-1:] * 3
    if after[1].is_word("AS"):
        return after[2].text
    if after[1].kind is Kind.WORD and not after[1].is_word(*CLAUSES):
        return after[1].text
    return after[0].text

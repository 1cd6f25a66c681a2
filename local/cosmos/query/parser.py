"""From query text to a `Query`, by recursive descent.

The grammar is a part of Cosmos SQL; what lies outside it is refused with a 400 that names the
construct and where it stands.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from local.cosmos.answers import Refusal, compact, unsupported
from local.cosmos.query.expressions import CLAUSES, ExpressionParser
from local.cosmos.query.syntax import Expression, ObjectOf, OrderKey, Property, Query, Texts
from local.cosmos.query.tokens import Kind

PARSED_MAX = 256


def parse_query(text: str, parameters: Mapping[str, Any]) -> Query:
    """Parse; every parameter is replaced by its value."""
    return QueryParser(text, parameters).query() if parameters else parse_constant(text)


@lru_cache(maxsize=PARSED_MAX)
def parse_constant(text: str) -> Query:
    """Parse a query without parameters, which is the same every time."""
    return QueryParser(text, {}).query()


@lru_cache(maxsize=PARSED_MAX)
def parse_filter(text: str) -> Expression:
    """Parse the condition of a patch: `FROM c WHERE ...`, without parameters."""
    return QueryParser(text, {}).filter()


class QueryParser(ExpressionParser):
    """The clauses around the expressions."""

    def query(self) -> Query:
        """SELECT [DISTINCT] [TOP n] selection FROM ... [WHERE] [ORDER BY] [OFFSET LIMIT]."""
        self.expect_word("SELECT")
        is_distinct = self.take_word("DISTINCT")
        top = self._count() if self.take_word("TOP") else None
        is_value = self.take_word("VALUE")
        selection, value = self._selection(is_value)
        source = self._source()
        condition, condition_text = self._condition()
        if self.token.is_word("GROUP"):
            raise self.refusal()
        order, order_texts = self._order()
        offset, limit = self._offset_limit()
        self.expect_end()
        query = Query(
            selection,
            Texts(self.alias, source, value, condition_text, order_texts),
            is_value=is_value,
            is_distinct=is_distinct,
            condition=condition,
            order=order,
            top=top,
            offset=offset,
            limit=limit,
            aggregates=tuple(self.aggregates),
        )
        check_combination(query)
        return query

    def filter(self) -> Expression:
        """FROM ... WHERE condition."""
        self._source()
        self.expect_word("WHERE")
        condition = self.expression()
        self.expect_end()
        return condition

    def _selection(self, is_value: bool) -> tuple[Expression, str]:
        """The selection, and the text of its value."""
        if not is_value and self.take_mark("*"):
            return Property(()), self.alias
        start = self.token.position
        self.aggregates_allowed = True
        selection, value = (self.expression(), "") if is_value else self._fields()
        self.aggregates_allowed = False
        if self.aggregates and self.has_bare_property:
            raise unsupported("a property beside an aggregate, which needs GROUP BY")
        return selection, value or self.text_since(start)

    def _fields(self) -> tuple[Expression, str]:
        """Fields as an object, and the text of that."""
        fields = [self._field(1)]
        while self.take_mark(","):
            fields.append(self._field(len(fields) + 1))
        members = ", ".join(f"{compact(name)}: {text}" for name, _, text in fields)
        return ObjectOf(tuple((name, shown) for name, shown, _ in fields)), f"{{{members}}}"

    def _field(self, ordinal: int) -> tuple[str, Expression, str]:
        start = self.token.position
        expression = self.expression()
        text = self.text_since(start)
        if self.take_word("AS"):
            return self.expect_name(), expression, text
        match expression:
            case Property((*_, str(name))):
                return name, expression, text
            case Property(()):
                return self.alias, expression, text
            case _:
                return f"${ordinal}", expression, text

    def _source(self) -> str:
        self.expect_word("FROM")
        start = self.token.position
        self.expect_name()
        has_alias = self.token.kind is Kind.WORD and not self.token.is_word(*CLAUSES)
        if self.take_word("AS") or has_alias:
            self.expect_name()
        if self.token.is_word("JOIN", "IN"):
            raise self.refusal()
        if self.token.is_mark(".", "[", ","):
            raise unsupported("a FROM clause over something other than the container")
        return self.text_since(start)

    def _condition(self) -> tuple[Expression | None, str]:
        if not self.take_word("WHERE"):
            return None, ""
        start = self.token.position
        return self.expression(), self.text_since(start)

    def _order(self) -> tuple[tuple[OrderKey, ...], tuple[str, ...]]:
        if not self.take_word("ORDER"):
            return (), ()
        if self.take_word("RANK"):
            raise unsupported("ORDER BY RANK")
        self.expect_word("BY")
        keys = [self._order_key()]
        while self.take_mark(","):
            keys.append(self._order_key())
        return tuple(key for key, _ in keys), tuple(text for _, text in keys)

    def _order_key(self) -> tuple[OrderKey, str]:
        start = self.token.position
        expression = self.expression()
        path = expression.path if isinstance(expression, Property) else ()
        names = tuple(step for step in path if isinstance(step, str))
        if not names or len(names) < len(path):
            raise unsupported("ORDER BY of something other than a property path")
        text = self.text_since(start)
        is_descending = self.take_word("DESC")
        if not is_descending:
            self.take_word("ASC")
        return OrderKey(names, is_descending), text

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


def check_combination(query: Query) -> None:
    """Raise a 400 Refusal for clauses that do not go together."""
    is_limited = query.top is not None or query.limit is not None
    if query.top is not None and query.limit is not None:
        raise Refusal(400, "TOP and OFFSET LIMIT exclude each other")
    if query.aggregates and (query.order or is_limited or query.is_distinct):
        raise unsupported("an aggregate together with DISTINCT, TOP, ORDER BY or OFFSET LIMIT")

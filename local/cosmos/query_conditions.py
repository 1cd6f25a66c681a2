"""The part of the parser that reads conditions and operands."""

from collections.abc import Mapping
from typing import Any

from local.cosmos.answers import Refusal, unsupported
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
from local.cosmos.query_tokens import Kind, Token, string_value

FUNCTIONS = {"IS_DEFINED": 1, "STARTSWITH": 2, "ARRAY_LENGTH": 1}
AGGREGATES = {"COUNT", "SUM", "AVG", "MIN", "MAX"}
CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}
COMPARISONS = ("=", "!=", "<>", "<", "<=", ">", ">=")
DEPTH_MAX = 64


class ConditionParser:
    """A cursor over tokens, and the grammar of expressions."""

    def __init__(self, tokens: list[Token], parameters: Mapping[str, Any], alias: str) -> None:
        self._tokens = tokens
        self._parameters = parameters
        self._alias = alias
        self._at = 0
        self._depth = 0

    @property
    def token(self) -> Token:
        """The token to be read next."""
        return self._tokens[self._at]

    def advance(self) -> Token:
        """Read one token."""
        token = self.token
        self._at += 1
        return token

    def take_word(self, word: str) -> bool:
        """Read a keyword if it stands here."""
        return self.token.is_word(word) and bool(self.advance())

    def take_mark(self, *marks: str) -> bool:
        """Read a punctuation mark if one of these stands here."""
        return self.token.is_mark(*marks) and bool(self.advance())

    def expect_word(self, word: str) -> None:
        """Read a keyword that must stand here."""
        if not self.take_word(word):
            raise Refusal(400, f"syntax error at {self.token.position}: {word} expected")

    def expect_mark(self, mark: str) -> None:
        """Read a punctuation mark that must stand here."""
        if not self.take_mark(mark):
            raise self.refusal()

    def expect_name(self) -> str:
        """Read an identifier that must stand here."""
        if self.token.kind is not Kind.WORD:
            raise self.refusal()
        return self.advance().text

    def refusal(self) -> Refusal:
        """The refusal of the construct that begins at the current token."""
        what = self.token.text or "the end of the query"
        return unsupported(f"{what} at position {self.token.position} of a query")

    def condition(self) -> Expression:
        """A condition: OR binds weakest, then AND, then NOT."""
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise Refusal(400, f"a query may nest {DEPTH_MAX} parentheses at most")
        operands = [self._conjunction()]
        while self.take_word("OR"):
            operands.append(self._conjunction())
        self._depth -= 1
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
        left = self.operand()
        if self.token.is_mark(*COMPARISONS):
            operator = self.advance().text
            return Comparison("!=" if operator == "<>" else operator, left, self.operand())
        is_negated = self.take_word("NOT")
        if self.take_word("IN"):
            membership = Membership(left, self._arguments())
            return Negation(membership) if is_negated else membership
        if is_negated:
            raise self.refusal()
        return left

    def operand(self) -> Expression:
        """A constant, a property, a function call, or a condition in parentheses."""
        if self.take_mark("("):
            inner = self.condition()
            self.expect_mark(")")
            return inner
        if self.token.kind is Kind.WORD and not self.token.is_word(*CONSTANTS):
            return self._named()
        return Literal(self.constant())

    def constant(self) -> Any:
        """A literal or a parameter, as its value."""
        sign = -1 if self.take_mark("-") else 1
        token = self.token
        if token.kind is Kind.NUMBER:
            text = self.advance().text
            return sign * (int(text) if text.isdigit() else float(text))
        if sign == -1:
            raise self.refusal()
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
            return self._call(name.upper())
        if name != self._alias:
            raise unsupported(f"{name} at position {token.position} of a query")
        path: list[str] = []
        while self.token.is_mark(".", "["):
            path.append(self._step())
        return Property(tuple(path))

    def _step(self) -> str:
        if self.take_mark("."):
            return self.expect_name()
        self.expect_mark("[")
        if self.token.kind is not Kind.STRING:
            raise unsupported(f"array indexes (at position {self.token.position} of a query)")
        name = string_value(self.advance().text)
        self.expect_mark("]")
        return name

    def _call(self, name: str) -> Call:
        position = self.token.position
        arguments = self._arguments()
        if name in AGGREGATES:
            return Call(name, arguments)
        if name not in FUNCTIONS:
            raise unsupported(f"the function {name} (at position {position} of a query)")
        if len(arguments) != FUNCTIONS[name]:
            raise unsupported(f"{name} with {len(arguments)} arguments")
        return Call(name, arguments)

    def _arguments(self) -> tuple[Expression, ...]:
        self.expect_mark("(")
        arguments = [self.operand()]
        while self.take_mark(","):
            arguments.append(self.operand())
        self.expect_mark(")")
        return tuple(arguments)

"""Walking over the tokens of a query."""

from local.cosmos.answers import Refusal, unsupported
from local.cosmos.query.tokens import Kind, Token, tokenize


class Cursor:
    """A place between two tokens, and what may be read there."""

    def __init__(self, text: str) -> None:
        self.tokens = tokenize(text)
        self._text = text
        self._at = 0

    @property
    def token(self) -> Token:
        """The token to be read next."""
        return self.tokens[self._at]

    def advance(self) -> Token:
        """Read one token."""
        token = self.token
        self._at += 1
        return token

    def text_since(self, start: int) -> str:
        """The query's text from a position up to the token to be read next."""
        return self._text[start : self.token.position].strip()

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

    def expect_end(self) -> None:
        """Make sure that nothing is left."""
        if self.token.kind is not Kind.END:
            raise self.refusal()

    def refusal(self) -> Refusal:
        """The refusal of the construct that begins at the current token."""
        what = self.token.text or "the end of the query"
        return unsupported(f"{what} at position {self.token.position} of a query")

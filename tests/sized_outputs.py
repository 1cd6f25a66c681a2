"""A small business with outputs of any size: it writes letters and keeps what it is told."""

from collections.abc import Iterable

from pydantic import BaseModel

from shared.domain.handler import OUTPUTS, Context, Handled, Handlers, Kind, Output
from shared.domain.message import Message
from tests.world import message

WRITER = "writer"
READER = "reader"

handlers = Handlers()


class Sizes(BaseModel):
    """How long the letters of a message are to be, and how much is to be remembered of it."""

    sizes: list[int]
    remember: int = 0


class Letter(BaseModel):
    """A letter to another session."""

    id: str
    text: str


class Written(BaseModel):
    """How long the letters were that were written, message by message."""

    sizes: list[list[int]] = []
    memory: str = ""


class Read(BaseModel):
    """How much a reader has read, letter by letter."""

    letters: list[int] = []


def letters(written: Written, body: Sizes, context: Context) -> Handled[Written]:
    """Write letters."""
    texts = [chr(ord("a") + n % 26) * size for n, size in enumerate(body.sizes)]
    outputs = (
        Output("letter", Letter(id=context.new_id(), text=t), READER, OUTPUTS) for t in texts
    )
    memory = "m" * body.remember or written.memory
    return Handled(Written(sizes=[*written.sizes, body.sizes], memory=memory), tuple(outputs))


handlers.register("write", state=Written, body=Sizes)(letters)
handlers.register("write.again", state=Written, body=Sizes, kind=Kind.DETERMINISTIC)(letters)


@handlers.register("letter", state=Read, body=Letter)
def read(reader: Read, letter: Letter, _: Context) -> Read:
    """Read a letter."""
    return Read(letters=[*reader.letters, len(letter.text)])


def writing(
    sizes: Iterable[int], sequence: int = 0, kind: str = "write", remember: int = 0
) -> Message:
    """A message whose handler writes letters of these lengths."""
    body = Sizes(sizes=list(sizes), remember=remember).model_dump_json().encode()
    numbered = message(sequence, session=WRITER, kind=kind)
    return Message(numbered.id, WRITER, kind, body, numbered.number)

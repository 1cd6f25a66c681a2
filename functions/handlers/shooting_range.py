"""A shooting range: a target moves, shots hit or miss, and a scoreboard counts them.

A game and its scoreboard are sessions of their own. Outputs are made again rather than stored: a
shot met a second time is judged against the target as it stood when the shot was first taken.
"""

from pydantic import BaseModel, Field

from lockstep import Context, Handled, Handlers, Kind, Output

ROUND_ATTEMPTS = 5
POSITIONS = 100
SCOREBOARDS = "*/score"

handlers = Handlers()


class Move(BaseModel):
    """Put the target somewhere; this begins a round."""

    position: int = Field(ge=0, lt=POSITIONS)


class Fire(BaseModel):
    """Shoot at a position."""

    position: int = Field(ge=0, lt=POSITIONS)


class Shot(BaseModel):
    """The result of a shot."""

    id: str
    game: str
    position: int
    attempt: int


class Target(BaseModel):
    """The target of a game, and how often this round was shot at it."""

    position: int = 0
    attempts: int = 0


class Score(BaseModel):
    """The count of a scoreboard."""

    hits: int = 0
    misses: int = 0


@handlers.register("range.move", state=Target, body=Move, kind=Kind.DETERMINISTIC)
def move(_: Target, body: Move, __: Context) -> Target:
    """Begin a round with the target in a new place."""
    return Target(position=body.position)


@handlers.register("range.fire", state=Target, body=Fire, kind=Kind.DETERMINISTIC)
def fire(target: Target, body: Fire, context: Context) -> Handled[Target]:
    """Tell the scoreboard of a hit or a miss; the last attempt of a round ends it."""
    game = context.message.session
    attempts = target.attempts + 1
    shot = Shot(id=context.new_id(), game=game, position=body.position, attempt=attempts)
    kind = "range.hit" if body.position == target.position else "range.missed"
    return Handled(after(target, attempts, context), (Output(kind, shot, scoreboard_of(game)),))


@handlers.register("range.hit", state=Score, body=Shot, sessions=SCOREBOARDS)
def hit(score: Score, _: Shot, __: Context) -> Score:
    """Count a hit."""
    return score.model_copy(update={"hits": score.hits + 1})


@handlers.register("range.missed", state=Score, body=Shot, sessions=SCOREBOARDS)
def missed(score: Score, _: Shot, __: Context) -> Score:
    """Count a miss."""
    return score.model_copy(update={"misses": score.misses + 1})


def after(target: Target, attempts: int, context: Context) -> Target:
    """The target after a shot; a new round begins with it in a random place."""
    if attempts == ROUND_ATTEMPTS:
        return Target(position=context.random.randrange(POSITIONS))
    return target.model_copy(update={"attempts": attempts})


def scoreboard_of(game: str) -> str:
    """The session of a game's scoreboard."""
    return f"{game}/score"

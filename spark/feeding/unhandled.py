"""Events that no handler of the app takes: each would be a fault, and would halt its session."""

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from shared.backtest.app import AppUnusable, load_app
from shared.domain.errors import NotAllowed, UnknownType
from shared.domain.handler import Handlers
from spark.job.console import JobConsole
from spark.job.failures import JobRefused


@dataclass(frozen=True, slots=True)
class Unhandled:
    """So many events of a type, in so many sessions, and what the app says of one of them."""

    type: str
    events: int
    sessions: int
    why: str


def look_for_unhandled(
    facts: DataFrame, folder: str | None, console: JobConsole
) -> tuple[Unhandled, ...]:
    """The facts without a handler in the app of a folder, or of this one if none is named.

    Where no folder is named and no handlers are found here, the console says that this was not
    looked at. Raises JobRefused for a folder that is named and whose handlers cannot be loaded.
    """
    try:
        handlers = load_app(Path(folder or "."))
    except AppUnusable as error:
        if folder is not None:
            raise JobRefused(str(error)) from None
        unknown = "whether handlers take these types and sessions is not known, --app names no app"
        console.log(f"{unknown}: {error}")
        return ()
    return find_unhandled(facts, handlers)


def find_unhandled(facts: DataFrame, handlers: Handlers) -> tuple[Unhandled, ...]:
    """Ask the handlers of each type and session, as the app does.

    The sessions pass through the driver one by one, and none of them is kept.
    """
    counted = facts.groupBy("type", "session").agg(F.count("*")).sort("type", "session")
    found: dict[tuple[str, type], Unhandled] = {}
    for kind, session, events in counted.toLocalIterator():
        try:
            handlers.of(kind, session)
        except (NotAllowed, UnknownType) as error:
            first = Unhandled(kind, 0, 0, str(error))
            so_far = found.get((kind, type(error)), first)
            found[kind, type(error)] = Unhandled(
                kind, so_far.events + events, so_far.sessions + 1, so_far.why
            )
    return tuple(found.values())

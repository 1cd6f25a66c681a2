"""One feed of a checkout, with a sender that takes everything and sends nothing.

    python .../one_feed.py MODULE WORDS...

Runs MODULE, a feed's command line, of the checkout that is first on PYTHONPATH, of this release or
of an older one. So it imports nothing of the product but by name.
"""

import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Any

# Where a feed finds its sender: now, and before spark/ had folders.
FEEDING = ("spark.feeding.dataframe", "spark.feeding")
SENDING = ("spark.send.datasource", "spark.datasource")
ROWS = ("spark.send.rows", "spark.sending")


def find_module(name: str, modules: Sequence[str]) -> Any:
    """Return the first of the modules that has the name."""
    for module in modules:
        try:
            found = import_module(module)
        except ModuleNotFoundError:
            continue
        if hasattr(found, name):
            return found
    raise SystemExit(f"this checkout has {name} in none of {', '.join(modules)}")


def main() -> int:
    module, *words = sys.argv[1:]
    counts = find_module("SendCounts", ROWS).SendCounts
    source = find_module("LockstepDataSource", SENDING).LockstepDataSource

    @asynccontextmanager
    async def taking(_settings: Mapping[str, str]) -> AsyncIterator[Any]:
        async def send(messages: Sequence[Any]) -> Any:
            return counts(len(messages), 0)

        yield send

    taker = type("Taker", (source,), {"open_sender": staticmethod(taking)})
    feeding = find_module("EventWriter", FEEDING)
    feeding.EventWriter = partial(feeding.EventWriter, source=taker)
    # The samples were once beside spark/.
    program = find_module("main", (module, module.removeprefix("spark.")))
    return int(program.main(words))


if __name__ == "__main__":
    sys.exit(main())

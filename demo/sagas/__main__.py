"""`python -m demo.sagas`: orders as sagas on one machine, through a region's death."""

import signal
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from demo.__main__ import interrupt
from demo.children import ChildFailed
from demo.control import ControlRefused
from demo.options import rate
from demo.sagas.run import Options, run
from demo.sagas.shop import Unanswered

DESCRIPTION = """\
Places orders over scarce stock in two regions, approves, rejects, cancels or forgets some of them,
kills a region half-way, brings it back, and holds the journals against each other: every order
completed or fully compensated, stock and money conserved, nothing pending. Exit status: 0 every
promise held, 1 one was broken, 2 the run could not be done, 130 interrupted."""


def main(words: Sequence[str]) -> int:
    """Run; the answer is the exit status."""
    try:
        return run(options_of(words))
    except KeyboardInterrupt:
        print("interrupted; everything was stopped", file=sys.stderr)
        return 130
    except (ChildFailed, ControlRefused, Unanswered, OSError) as error:
        print(f"python -m demo.sagas: {error}", file=sys.stderr)
        return 2


def options_of(words: Sequence[str]) -> Options:
    """Read the command line; argparse ends the process on a bad one."""
    parser = ArgumentParser(prog="python -m demo.sagas", description=DESCRIPTION)
    parser.add_argument("--data", type=Path, default=Path(".demo-sagas"), metavar="DIR")
    parser.add_argument("--orders", type=int, default=200, metavar="N", help="default: 200")
    parser.add_argument("--rate", type=rate, default=6.0, metavar="N", help="orders a second: 6")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the orders: 1")
    parser.add_argument("--no-kill", action="store_true", help="let both regions live")
    asked = parser.parse_args(words)
    return Options(
        data=asked.data.resolve(),
        orders=asked.orders,
        rate=asked.rate,
        seed=asked.seed,
        kills=not asked.no_kill,
    )


if __name__ == "__main__":
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, interrupt)
    sys.exit(main(sys.argv[1:]))

"""`python -m demo.sagas`: orders as sagas on one machine, through the outage of a region."""

from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from demo.sagas.run import SagaOptions, run
from testbed.command import exit_status, parse_positive, run_program

DESCRIPTION = """\
Places orders over scarce stock in two regions, approves, rejects, cancels or forgets some of them,
kills a region half-way, brings it back, and checks the journals against each other: every order
completed or fully compensated, stock and money conserved, nothing pending. Exit status: 0 every
promise held, 1 one was broken, 2 the run could not be done, 130 interrupted."""


def main(words: Sequence[str]) -> int:
    options = parse_options(words)
    return exit_status("python -m demo.sagas", lambda: run(options))


def parse_options(words: Sequence[str]) -> SagaOptions:
    parser = ArgumentParser(prog="python -m demo.sagas", description=DESCRIPTION)
    parser.add_argument("--data", type=Path, default=Path(".demo-sagas"), metavar="DIR")
    parser.add_argument("--orders", type=int, default=200, metavar="N", help="default: 200")
    parser.add_argument(
        "--rate", type=parse_positive, default=6.0, metavar="N", help="orders a second: 6"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the orders: 1")
    parser.add_argument("--no-kill", action="store_true", help="let both regions live")
    asked = parser.parse_args(words)
    return SagaOptions(
        data=asked.data.resolve(),
        orders=asked.orders,
        rate=asked.rate,
        seed=asked.seed,
        kills=not asked.no_kill,
    )


if __name__ == "__main__":
    run_program(main)

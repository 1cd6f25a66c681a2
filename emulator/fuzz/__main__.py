"""`python -m fuzz`: valid AMQP and Cosmos DB requests, mutated, until something gives way.

Cases are whole AMQP connections and rows of HTTP requests to a cloud in a process of its own, each
valid one changed where its structure is known. Beside them a well-behaved client works on, which
must not notice anything. Each connection must end with a condition, each request with an answer
that is no 500; the process must not end, log anything or grow. Each case follows from the seed and
its number: --seed S --first N --last N sends it again.

Exit status: 0 nothing was found, 1 something was, 2 it could not be done.
"""

import argparse
import sys
from collections.abc import Sequence
from random import SystemRandom
from typing import Any

from fuzz.campaign import Service, run_campaign
from fuzz.cosmos import Cosmos
from fuzz.servicebus import ServiceBus
from local.testing.children import ChildFailed

SERVICES: dict[str, type[Service[Any]]] = {"servicebus": ServiceBus, "cosmos": Cosmos}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign for each service, and print what was found."""
    parser = argparse.ArgumentParser("python -m fuzz", None, __doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    take = parser.add_argument
    take("--service", choices=SERVICES, help="this one alone")
    take("--seconds", type=float, default=60.0, help="for each service (%(default)g)")
    take("--seed", type=int, help="another one in every run, unless it is given")
    take("--first", type=int, default=1, metavar="N", help="the number of the first case (1)")
    take("--last", type=int, default=sys.maxsize, metavar="N", help="and of the last")
    chosen = parser.parse_args(arguments)
    seed = SystemRandom().randrange(10**6) if chosen.seed is None else chosen.seed
    status = 0
    try:
        for name in [chosen.service] if chosen.service else SERVICES:
            numbers = range(chosen.first, chosen.last + 1)
            said, found = run_campaign(SERVICES[name], seed, numbers, chosen.seconds)
            print(f"{name}: seed {seed}, {said}: {found or 'nothing was found'}", flush=True)
            status = status or int(bool(found))
    except ChildFailed as error:
        print(error, file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())

"""A client that does all kinds of deeds at once until it, or the cloud, is killed.

    python -m tests.wire.deeds_process CONTRACT ROUND DIRECTORY

CONTRACT is the line that the cloud printed. For each acknowledged deed of a kind one byte is added
to the file of the kind's name in DIRECTORY.
"""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Barrier

from tests.wire.deeds import KINDS, Clients, Deed
from tests.wire.service_bus import hurried_client

READY_SECONDS_MAX = 60.0


def name_of(kind: type[Deed], round_name: str) -> str:
    """The session, and the file, of a kind in a round."""
    return f"{kind.__name__.lower()}-{round_name}"


def work(deed: Deed, acknowledged: Path, together: Barrier) -> None:
    """One deed after the other; ends with the error that the kill brings."""
    deed.prepare()
    file = os.open(acknowledged, os.O_WRONLY | os.O_CREAT)
    together.wait(READY_SECONDS_MAX)
    for number in count():
        deed.do(number)
        os.write(file, b".")


def main(contract: str, round_name: str, directory: str) -> None:
    """Work at every kind in a thread of its own."""
    together = Barrier(len(KINDS))
    with hurried_client(), ThreadPoolExecutor(len(KINDS)) as threads:
        for kind in KINDS:
            name = name_of(kind, round_name)
            deed = kind(Clients(json.loads(contract)), name)
            threads.submit(work, deed, Path(directory) / name, together)


if __name__ == "__main__":
    main(*sys.argv[1:])

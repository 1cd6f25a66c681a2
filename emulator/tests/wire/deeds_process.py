"""A client that does all kinds of deeds at once until it, or the cloud, is killed.

    python -m wire.deeds_process CONTRACT ROUND DIRECTORY

CONTRACT is the line that the cloud printed. For each acknowledged deed of a kind one byte is added
to the file of the kind's name in DIRECTORY.
"""

import json
import os
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Barrier

from wire.deeds import KINDS, Clients, Deed
from wire.service_bus import hurried_client

READY_SECONDS_MAX = 60.0
# On a busy machine one kind may be far quicker than another, and what waits to be settled runs out.
AHEAD_MAX, PAUSE_SECONDS = 100, 0.01


def name_of(kind: type[Deed], round_name: str) -> str:
    """The session, and the file, of a kind in a round."""
    return f"{kind.__name__.lower()}-{round_name}"


def work(deed: Deed, acknowledged: Path, together: Barrier, done: Counter[str]) -> None:
    """One deed after the other, in step with the slowest; ends with the error of the kill."""
    deed.prepare()
    file = os.open(acknowledged, os.O_WRONLY | os.O_CREAT)
    together.wait(READY_SECONDS_MAX)
    for number in count():
        deed.do(number)
        os.write(file, b".")
        done[deed.name] = number
        while number > min(done.values()) + AHEAD_MAX:
            time.sleep(PAUSE_SECONDS)


def main(contract: str, round_name: str, directory: str) -> None:
    """Work at every kind in a thread of its own."""
    together = Barrier(len(KINDS))
    done = Counter({name_of(kind, round_name): 0 for kind in KINDS})
    with hurried_client(), ThreadPoolExecutor(len(KINDS)) as threads:
        for kind in KINDS:
            name = name_of(kind, round_name)
            deed = kind(Clients(json.loads(contract)), name)
            threads.submit(work, deed, Path(directory) / name, together, done)


if __name__ == "__main__":
    main(*sys.argv[1:])

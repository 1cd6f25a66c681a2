"""Run handlers again in other processes, whose sets and hashes come in another order."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from types import ModuleType
from typing import Any

from shared.domain.handler import Handler, HandlerInput, Handlers
from shared.storage.documents import decode_message, encode_message
from shared.testkit.found import Found
from shared.testkit.given import described
from shared.testkit.purity import Run, Shown, difference, repeated

PROGRAM = "from shared.testkit.elsewhere import answer; answer()"
TIMEOUT_SECONDS = 120


def require_same_elsewhere(runs: Sequence[Run], hash_seeds: Sequence[int]) -> None:
    """Raise Found where another process gives other bytes.

    Handlers that are not at the top of an importable module cannot be run there, and are not.
    """
    movable = [run for run in runs if is_importable(run.handler)]
    if not movable:
        return
    jobs = json.dumps({"path": sys.path, "jobs": [job(run) for run in movable]})
    processes = [start(seed) for seed in hash_seeds]
    answers = [ask(process, jobs) for process in processes]
    for answered in answers:
        for run, again in zip(movable, answered, strict=True):
            require_equal(run, again)


def require_equal(run: Run, again: Shown) -> None:
    """Raise Found where the other process gave something else."""
    if again != run.shown:
        here, there = difference(run.shown, again)
        raise Found(
            f"the handler of {described(run.message)} gives other bytes in another process: here"
            f" {here}, there {there}. It depends on the order of a set, on hash() or on something"
            f" of its process: sort what it goes through"
        )


def start(hash_seed: int) -> subprocess.Popen[str]:
    """A Python process with a hash seed of its own."""
    return subprocess.Popen(  # noqa: S603 - our own program in this interpreter
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONHASHSEED": str(hash_seed),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
    )


def ask(process: subprocess.Popen[str], jobs: str) -> list[Shown]:
    """What the process gives; raises RuntimeError with its words where it fails."""
    try:
        answered, complaint = process.communicate(jobs, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    if process.returncode:
        raise RuntimeError(f"the handlers could not be run in another process: {complaint}")
    shown: list[Shown] = json.loads(answered)
    return shown


def job(run: Run) -> Mapping[str, Any]:
    """A run as another process can be told of it."""
    return {
        "module": run.handler.handle.__module__,
        "before": asdict(run.before),
        "message": encode_message(run.message),
    }


def is_importable(handler: Handler) -> bool:
    """Whether another process would find this very handler in its module."""
    module = sys.modules.get(handler.handle.__module__)
    return module is not None and module.__name__ != "__main__" and handler in found_in(module)


def found_in(module: ModuleType) -> Iterable[Handler]:
    """The handlers registered in a module."""
    parts = [value for value in vars(module).values() if isinstance(value, Handlers)]
    return [handler for part in parts for handler in part.by_type.values()]


def answer() -> None:
    """Run the jobs that standard input names; what handlers print goes elsewhere."""
    told = json.load(sys.stdin)
    sys.path[:] = told["path"]
    with redirect_stdout(sys.stderr):
        shown = [do(each) for each in told["jobs"]]
    json.dump(shown, sys.stdout)


def do(told: Mapping[str, Any]) -> Shown:
    """Run one job."""
    message = decode_message(told["message"])
    found = found_in(importlib.import_module(told["module"]))
    handler = next(handler for handler in found if handler.message_type == message.type)
    try:
        return repeated(Run(handler, HandlerInput(**told["before"]), message, {}))
    except Exception as error:
        return {"error": repr(error)}

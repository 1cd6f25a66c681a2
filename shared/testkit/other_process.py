"""Run handlers again in other processes: sets and hashes come in another order, in another zone."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from itertools import chain
from types import ModuleType
from typing import Any

from shared.domain.handler import Handler, HandlerInput, Handlers
from shared.domain.journal import ModelVersion
from shared.storage.documents import decode_message, encode_message
from shared.testkit.given import Found, in_words
from shared.testkit.purity import ZONES, ComparableResult, HandlerRun, differing_parts, repeated

PROGRAM = "from shared.testkit.other_process import run_jobs; run_jobs()"
TIMEOUT_SECONDS = 120


def require_same_elsewhere(runs: Sequence[HandlerRun], hash_seeds: Sequence[int]) -> None:
    """Raise Found where another process gives other bytes, if it can import the handler."""
    movable = [run for run in runs if is_importable(run.handler)]
    if not movable:
        return
    jobs = [
        {
            "module": run.handler.handle.__module__,
            "before": asdict(run.before),
            "message": encode_message(run.message),
            "here": sorted(run.here),
        }
        for run in movable
    ]
    processes = [start(seed) for seed in hash_seeds]
    given = json.dumps({"path": sys.path, "jobs": jobs})
    answers = [results_of(process, given) for process in processes]
    for run, again in chain.from_iterable(zip(movable, each, strict=True) for each in answers):
        if again != run.result:
            here, there = differing_parts(run.result, again)
            raise Found(
                f"the handler of {in_words(run.message)} gives other bytes in another process:"
                f" here {here}, there {there}. It depends on the order of a set, on hash() or on"
                f" something of its process: sort what it goes through"
            )


def start(hash_seed: int) -> subprocess.Popen[str]:
    of_process = {"PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join(sys.path)}
    of_process["TZ"] = ZONES[hash_seed % len(ZONES)]
    return subprocess.Popen(  # noqa: S603 - our own program in this interpreter
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **of_process},
    )


def results_of(process: subprocess.Popen[str], jobs: str) -> list[ComparableResult]:
    """Return the process's results; raises RuntimeError with what it wrote where it fails."""
    try:
        answered, errors = process.communicate(jobs, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    if process.returncode:
        raise RuntimeError(f"the handlers could not be run in another process: {errors}")
    results: list[ComparableResult] = json.loads(answered)
    return results


def is_importable(handler: Handler) -> bool:
    """Return whether another process would find this very handler in its module."""
    module = sys.modules.get(handler.handle.__module__)
    return module is not None and module.__name__ != "__main__" and handler in found_in(module)


def found_in(module: ModuleType) -> Iterable[Handler]:
    parts = [value for value in vars(module).values() if isinstance(value, Handlers)]
    return [handler for part in parts for handler in part.by_type.values()]


def run_jobs() -> None:
    """Run the jobs that standard input names; what handlers print goes elsewhere."""
    given = json.load(sys.stdin)
    sys.path[:] = given["path"]
    with redirect_stdout(sys.stderr):
        results = [run_handler_job(each) for each in given["jobs"]]
    json.dump(results, sys.stdout)


def run_handler_job(job: Mapping[str, Any]) -> ComparableResult:
    message = decode_message(job["message"])
    found = found_in(importlib.import_module(job["module"]))
    handler = next(handler for handler in found if handler.message_type == message.type)
    model = job["before"].pop("model")
    before = HandlerInput(**job["before"], model=ModelVersion(**model) if model else None)
    return repeated(HandlerRun(handler, before, message, {}, job["here"]))

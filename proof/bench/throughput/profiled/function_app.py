"""Another app, unchanged, with a sampler beside it: for measurements only.

The app setting BENCH_PROFILED_APP names the directory of the app. Every few milliseconds of
processor time the stack of the event loop's thread is noted; `GET /api/bench/profile` gives the
stacks, innermost frame first, with how often each was seen, as JSON.
"""

import importlib.util
import json
import os
import signal
from collections import Counter
from pathlib import Path
from types import FrameType

import azure.functions as func

EVERY_SECONDS = 0.005
DEPTH_MAX = 80

type Stack = tuple[str, ...]

samples: Counter[Stack] = Counter()


def load(directory: Path) -> func.FunctionApp:
    spec = importlib.util.spec_from_file_location("profiled_app", directory / "function_app.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"no function_app.py in {directory}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: func.FunctionApp = module.app
    return found


def note(_: int, frame: FrameType | None) -> None:
    samples[read_stack(frame)] += 1


def read_stack(frame: FrameType | None) -> Stack:
    stack: list[str] = []
    while frame is not None and len(stack) < DEPTH_MAX:
        stack.append(f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}")
        frame = frame.f_back
    return tuple(stack)


app = load(Path(os.environ["BENCH_PROFILED_APP"]))


@app.route(route="bench/profile", auth_level=func.AuthLevel.ANONYMOUS, trigger_arg_name="request")
async def profile(request: func.HttpRequest) -> func.HttpResponse:  # noqa: ARG001
    noted = json.dumps([[stack, seen] for stack, seen in samples.items()])
    return func.HttpResponse(noted, mimetype="application/json")


signal.signal(signal.SIGPROF, note)
signal.setitimer(signal.ITIMER_PROF, EVERY_SECONDS, EVERY_SECONDS)

"""An app is imported once, in a process of its own, before a host is started with it.

`python -m cli.trial FOLDER` is that process: it imports the app as a host's worker does, and prints
what it found as one line of JSON. It connects to nothing.
"""

import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Never
from unittest.mock import MagicMock

from cli.failures import CommandFailed
from cli.folders import PACKAGES, show_path
from local.testing.patience import PatienceExhausted, run_patiently

TRIAL_SECONDS_MAX = 60.0
ALARM_SECONDS = 600
OUTPUT_CHARACTERS_MAX = 2_000
# What a part of the cloud is reached by while there is none.
NOWHERE = {
    "servicebus": "Endpoint=sb://127.0.0.1;SharedAccessKeyName=none;SharedAccessKey=none;"
    "UseDevelopmentEmulator=true;",
    "cosmos": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=bm9uZQ==;",
    "durable": "127.0.0.1:1",
}


def try_app(app: Path, config: Path, settings: Mapping[str, str]) -> dict[str, list[str]]:
    """Import an app with a host's settings; return the message types of each of its modules.

    Raises CommandFailed with one line, `FILE:LINE: ERROR: text`, where it cannot be imported, and
    with what it printed where it ends its own process or does not come to an end.
    """
    hosts = json.loads(config.read_text("utf-8"))["Hosts"]
    addresses = NOWHERE | {"region": hosts["Regions"][0]}
    values = {
        name: re.sub(r"\{(\w+)[^{}]*\}", lambda m: addresses.get(m[1], m[0]), text)
        for name, text in hosts["Values"].items()
    }
    # The folders from which this process imports come first, wherever it was started.
    path = os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))
    environment = {**os.environ, **values, **settings, "PYTHONPATH": path}
    try:
        ran = run_patiently(
            [sys.executable, "-m", "cli.trial", str(app)],
            seconds=TRIAL_SECONDS_MAX,
            env=environment,
        )
    except PatienceExhausted:
        raise CommandFailed(
            f"{show_path(app / 'function_app.py')}: to import it took longer than"
            f" {TRIAL_SECONDS_MAX:.0f} s; a module must do nothing but define things"
        ) from None
    try:
        said = json.loads(ran.stdout)
    except ValueError:
        printed = (ran.stdout + ran.stderr)[-OUTPUT_CHARACTERS_MAX:].rstrip()
        raise CommandFailed(
            f"{show_path(app / 'function_app.py')}: to import it ended the process, with status"
            f" {ran.returncode}\n{printed}".rstrip()
        ) from None
    if "error" in said:
        place = ":".join([show_path(app / said["file"]), *map(str, said["line"])])
        raise CommandFailed(f"{place}: {said['error']}")
    found: dict[str, list[str]] = said["types"]
    return found


def find_types(app: Path) -> dict[str, list[str]]:
    """The message types that were registered by the imported modules of an app, by its files."""
    from lockstep import Handlers

    modules = {
        file.relative_to(app): module
        for module in [*sys.modules.values()]
        if (file := Path(getattr(module, "__file__", None) or "/")).is_relative_to(app)
    }
    # It has all of them; but a module that connects its handlers has them nowhere else.
    last = modules.pop(Path("function_app.py"))
    owners: dict[str, str] = {}
    whole: list[tuple[Path | None, ModuleType]] = [*sorted(modules.items()), (None, last)]
    for path, module in whole:
        for handlers in [one for one in vars(module).values() if isinstance(one, Handlers)]:
            for name, handler in handlers.by_type.items():
                code = getattr(sys.modules.get(handler.handle.__module__), "__file__", None) or "/"
                is_own = path is None and Path(code).is_relative_to(app)
                place = path or (Path(code).relative_to(app) if is_own else "function_app.py")
                if not handler.is_ours:
                    owners.setdefault(name, str(place))
    return {place: [n for n in owners if owners[n] == place] for place in owners.values()}


def locate_failure(app: Path, error: BaseException) -> dict[str, Any]:
    """Return where in an app's own files an import went wrong, and why, in one line."""
    places = [
        (Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)
    ]
    try:
        text = str(error)
    except BaseException as untold:
        text = f"its text cannot be told, because of {type(untold).__name__}"
    if isinstance(error, SyntaxError) and error.filename:
        places.append((Path(error.filename), error.lineno))
        # Its own text would repeat the place.
        text = error.msg
    own = [
        (str(file.relative_to(app)), line)
        for file, line in places
        if file.is_relative_to(app)
        and not any(one.startswith(".") or one == "site-packages" for one in file.parts[1:])
    ]
    file, line = own[-1] if own else ("function_app.py", None)
    said = " ".join(text.split())[:OUTPUT_CHARACTERS_MAX]
    name = type(error).__name__
    found = [line] if line else []
    return {"file": file, "line": found, "error": f"{name}: {said}" if said else name}


def main(app: Path) -> Never:
    """Import the app, print what came of it, and end the process, whatever the app has begun."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What the app prints is not the answer.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # Nobody ends it whose parent was killed meanwhile.
    signal.alarm(ALARM_SECONDS)
    os.chdir(app)
    sys.path[:0] = [str(app), str(app / PACKAGES)]
    said: dict[str, Any]
    try:
        # The app's own files are tried. Lockstep's, and the SDKs behind them, are two thirds of an
        # import: what connects them stands aside, and takes whatever is asked of it.
        vars(import_module("lockstep")).update(
            connect=MagicMock(),
            build_app=lambda *_: import_module("azure.functions").FunctionApp(),
        )
        import_module("function_app")
        said = {"types": find_types(app)}
    except BaseException as error:
        said = locate_failure(app, error)
    json.dump(said, answer)
    answer.flush()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())

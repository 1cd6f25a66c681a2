"""The launch.json that `lockstep new app` writes: a breakpoint in a handler stops both regions.

A client of the Debug Adapter Protocol does what VS Code does with that file: it launches "lockstep
up", opens a session for every process below it, and sets the breakpoint in each.
"""

import ast
import importlib.util
import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

from cli.folders import write_app
from local.testing.children import Child
from local.testing.cloud import HOST
from local.testing.patience import Patience, eventually, run_patiently, until
from proof.bench.first_app import find_environment

pytestmark = [pytest.mark.e2e, pytest.mark.proof]

SECONDS_MAX = 240.0
SEND = ("send", "shop-1", "shop.add", '{"amount": 5}', "--id", "once")
# What a person looks at while a handler is held.
SEEN = "(body.amount, __import__('os').environ['LOCKSTEP_REGION'])"


class DebugSession:
    """One connection to the debug adapter, which debugs one process."""

    def __init__(self, port: int, heard: Queue[tuple["DebugSession", Any]]) -> None:
        self.numbers = count(1)
        self.heard = heard
        self.answers: Queue[Any] = Queue()
        self.socket = socket.create_connection((HOST, port))
        self.stream = self.socket.makefile("rb")
        threading.Thread(target=self._read, daemon=True).start()

    def tell(self, command: str, **arguments: Any) -> int:
        number = next(self.numbers)
        message = {"seq": number, "type": "request", "command": command, "arguments": arguments}
        body = json.dumps(message).encode()
        self.socket.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        return number

    def ask(self, command: str, **arguments: Any) -> Any:
        number = self.tell(command, **arguments)
        while (answer := self.answers.get(timeout=SECONDS_MAX))["request_seq"] != number:
            continue
        assert answer["success"], answer
        return answer.get("body")

    def _read(self) -> None:
        with suppress(OSError, ValueError):
            while header := self.stream.readline():
                length = int(header.partition(b":")[2])
                self.stream.readline()
                message = json.loads(self.stream.read(length))
                if message["type"] == "response":
                    self.answers.put(message)
                else:
                    self.heard.put((self, message))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    if importlib.util.find_spec("debugpy") is None:
        pytest.skip("not run: debugpy is not installed: `.ci/setup` does it")
    write_app(tmp_path / "shop")
    return tmp_path / "shop"


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of a debug adapter, which ends with all that it has launched."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        free = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "debugpy.adapter", "--host", HOST, "--port", str(free)]
    with Child(command, log=tmp_path / "adapter.log"):
        yield free


def read_launch(app: Path, name: str) -> dict[str, Any]:
    """A configuration of launch.json, which is JSON with comments."""
    written = (app / ".vscode/launch.json").read_text().replace("${workspaceFolder}", str(app))
    kept = [line for line in written.splitlines() if not line.lstrip().startswith("//")]
    (found,) = [one for one in json.loads("".join(kept))["configurations"] if one["name"] == name]
    return dict(found)


def test_a_breakpoint_in_a_handler_under_up_stops_both_regions(shop: Path, port: int) -> None:
    module = shop / "handlers/shop.py"
    line = module.read_text().partition("added = ")[0].count("\n") + 1
    environment = find_environment(shop.parent)
    # There is no terminal here; what is launched is the same.
    launch = read_launch(shop, "lockstep up")
    launch |= {"console": "internalConsole", "env": environment, "python": sys.executable}
    heard: Queue[tuple[DebugSession, Any]] = Queue()
    said, is_sent = "", False
    # By region: the session of its worker, and the thread that is held.
    held: dict[str, tuple[DebugSession, int]] = {}
    patience = Patience(SECONDS_MAX)
    root = eventually(lambda: DebugSession(port, heard), what="the debug adapter")
    with ExitStack() as ending:
        ending.callback(root.tell, "disconnect", terminateDebuggee=True)
        root.ask("initialize", adapterID="debugpy", pathFormat="path")
        root.tell("launch", **launch)
        while len(held) < 2:
            assert not patience.is_over(), (held, said)
            try:
                session, message = heard.get(timeout=1)
            except Empty:
                continue
            body = message.get("body", {})
            match message.get("event"):
                case "initialized":
                    source = {"path": str(module)}
                    session.ask("setBreakpoints", source=source, breakpoints=[{"line": line}])
                    session.ask("configurationDone")
                case "debugpyAttach":
                    child = DebugSession(int(body["connect"]["port"]), heard)
                    child.ask("initialize", adapterID="debugpy", pathFormat="path")
                    child.tell("attach", **body)
                case "output":
                    said += body["output"]
                case "stopped" if body["reason"] == "breakpoint":
                    frames = session.ask("stackTrace", threadId=body["threadId"])["stackFrames"]
                    frame, *_ = frames
                    assert (frame["source"]["path"], frame["line"]) == (str(module), line)
                    seen = session.ask("evaluate", expression=SEEN, frameId=frame["id"])
                    amount, region = ast.literal_eval(seen["result"])
                    assert amount == 5
                    held[region] = session, body["threadId"]
            if "Ctrl-C stops everything." in said and not is_sent:
                is_sent = True
                # It has no answer as long as the handler is held, and asks the other region then.
                ending.enter_context(
                    Child(
                        [f"{shop.parent}/lockstep", *SEND],
                        log=shop.parent / "send.log",
                        environment=environment,
                        cwd=shop,
                    )
                )

        assert sorted(held) == ["east", "west"]
        for session, thread in held.values():
            session.ask("setBreakpoints", source={"path": str(module)}, breakpoints=[])
            session.tell("continue", threadId=thread)

        def is_done() -> bool:
            shown = run_patiently(
                [f"{shop.parent}/lockstep", "show", "shop-1"], seconds=60, cwd=shop, env=environment
            ).stdout
            return '{"total": 5, "messages": 1}' in shown

        until(is_done, what="one effect")

"""README.md: its program runs, its status is true, and its commands are there."""

import json
import re
from typing import Any

from tests.docs.local_page import ROOT

README = (ROOT / "README.md").read_text()


def test_the_handler_and_the_test_of_the_page_run() -> None:
    (program,) = re.findall(r"^```python\n(.+?)^```$", README, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "readme"}

    exec(compile(program, "README.md", "exec"), names)
    names["test_deposits_are_applied_once_and_in_order"]()


def test_the_status_names_the_versions_that_there_are() -> None:
    status = README.split("**Status.**")[1].split("\n\n")[0]
    version = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    # What Lockstep requires itself; what that needs in turn follows after an empty line.
    required = (ROOT / "requirements.txt").read_text().split("\n\n")[0]
    pins = dict(re.findall(r"^(\S+)==(\S+)$", required, re.MULTILINE))
    candidates = {name: pin for name, pin in pins.items() if re.search(r"\d(a|b|rc)\d", pin)}
    bundle = json.loads((ROOT / "host.json").read_text())["extensionBundle"]["id"]

    assert f"Version {version[0]}," in status
    assert dict(re.findall(r"`([\w-]+)`\s(\d[\w.]*\w)", status)) == candidates
    assert ("preview extension bundle" in status) == bundle.endswith(".Preview")


def test_every_command_of_the_page_can_be_made() -> None:
    named = set(re.findall(r"`make ([a-z-]+)`", README))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert {"up", "demo", "demo-saga", "check", "test"} <= named
    assert named <= targets

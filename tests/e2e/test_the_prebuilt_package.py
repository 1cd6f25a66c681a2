"""The package for a deployment without a remote build, started from its zip and nothing else."""

import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest

from cli.__main__ import main
from cli.cloud import FLIGHT
from cli.folders import PACKAGES, ROOT, SHIPPED
from cli.regions import CONFIG
from local.testing.answers import KEY, request
from local.testing.patience import until
from proof.testbed.cloud import running_cloud
from tests.e2e.stack import Stack, effects
from tests.infra.test_package import needed_with, pins

pytestmark = [pytest.mark.e2e, pytest.mark.proof]


def copy_installed(packages: Iterable[str], to: Path) -> None:
    """What is installed here of packages, as pip would unpack it elsewhere."""
    for package in packages:
        for file in distribution(package).files or ():
            if ".." in file.parts or "__pycache__" in file.parts:
                continue
            target = to / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file.locate()), target)


def needed_with_all(packages: Iterable[str]) -> set[str]:
    return {name for package in packages for name in needed_with(package)}


def make_bare_python(folder: Path, *paths: Path) -> Path:
    """A Python that finds the standard library and these paths, and nothing else."""
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "found.pth").write_text("\n".join(map(str, paths)) + "\n")
    return folder / "bin/python"


def test_it_processes_a_message_with_what_is_in_the_zip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run

    # Nothing is fetched in a test: what pip would install is installed here in the same versions.
    def install(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        if "pip" not in command:
            return run(command, **options)
        asked.append(command)
        copy_installed(
            needed_with_all(pins("requirements.txt")), Path(command[command.index("--target") + 1])
        )
        return subprocess.CompletedProcess(command, 0)

    with monkeypatch.context() as patched:
        patched.setattr("cli.folders.subprocess.run", install)
        assert main(["package", str(ROOT), "--to", str(tmp_path / "built"), "--prebuilt"]) == 0
    (command,) = asked
    assert command[1:4] == ["-m", "pip", "install"]
    assert command[-3:] == ["--require-hashes", "-r", str(SHIPPED / "requirements.lock")]
    shutil.rmtree(tmp_path / "built")

    app, emulator = tmp_path / "app", tmp_path / "emulator"
    with ZipFile(tmp_path / "built.zip") as archive:
        archive.extractall(app)
    names = {path.name for path in app.iterdir()}
    assert names == {
        *("LICENSE", "function_app.py", "functions", "host.json", "lockstep.py"),
        *("requirements.txt", "shared", ".python_packages"),
    }
    # The emulator has packages of its own, which the app must not need.
    shutil.copytree(ROOT / "emulator/local", emulator / "local")
    own = needed_with_all(["croniter", "lark", "mmh3", "python-qpid-proton"])
    copy_installed(own - needed_with_all(pins("requirements.txt")), emulator)
    python = make_bare_python(tmp_path / "bare", emulator, app / PACKAGES)
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    alone = subprocess.run([python, "-c", "import shared"], check=False, capture_output=True)
    assert b"No module named 'shared'" in alone.stderr

    monkeypatch.setattr(sys, "executable", str(python))
    config = ("--config", str(CONFIG))
    with running_cloud("--app", str(app), *config, logs=tmp_path / "logs") as cloud:
        stack = Stack(cloud)
        path = f"/api/sessions/{FLIGHT.session}/messages?type={FLIGHT.type}"
        answer = request(
            cloud.contract["hosts"]["east"] + path,
            "POST",
            KEY | {"Idempotency-Key": "m-1"},
            json.dumps(FLIGHT.body).encode(),
        )
        assert answer.status == 202
        until(lambda: FLIGHT.session in stack.entries(), what="its entry")

        (entry,) = stack.entries()[FLIGHT.session]
        assert [name for name, _ in effects([entry])] == ["m-1"]
        assert entry["state"]["status"] == "airborne"

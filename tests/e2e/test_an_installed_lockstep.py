"""A wheel of this checkout, installed in a folder and used outside of the checkout."""

import importlib.util
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.folders import ROOT
from local.testing.answers import KEY, request
from local.testing.patience import run_patiently
from tests.e2e.test_what_up_prints import running_up

pytestmark = pytest.mark.e2e

# What the wheel is made of: nothing that proves, shows or deploys Lockstep.
PACKAGES = ("cli", "functions", "shared", "spark")
FILES = (
    *("LICENSE", "README.md", "host.json", "infra/requirements.lock", "lockstep.py"),
    *("pyproject.toml", "requirements.txt"),
)
MISTAKE = "\nWRONG: int = Output('bank.total', None)\n"


@dataclass(frozen=True, slots=True)
class Installed:
    """Where pip put Lockstep, and a folder in which somebody works."""

    packages: Path
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")}
        # Azure on one machine is a distribution of its own: that of this checkout, wherever it is.
        path = os.pathsep.join((str(self.packages), str(ROOT / "emulator")))
        return kept | {"PYTHONPATH": path}

    def run(self, *words: str | Path, status: int = 0, at: str = "") -> str:
        """Run Python with these words, which ends so; return what it prints."""
        ran = run_patiently(
            [sys.executable, *words], seconds=300, cwd=self.folder / at, env=self.environment
        )
        assert ran.returncode == status, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    def lockstep(self, *words: str, status: int = 0) -> str:
        return self.run(self.packages / "bin/lockstep", *words, status=status)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of installed packages with a wheel that was built from a copy of the checkout."""
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("not run: setuptools is not installed: `.ci/setup` does it")
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("packages")
    (source / "infra").mkdir()
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, symlinks=True)
    for name in FILES:
        shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--no-index"]
    pip += ["--no-build-isolation", "--target", str(target), str(source)]
    assert run_patiently(pip, seconds=300).returncode == 0
    return target


@pytest.fixture
def installed(packages: Path, tmp_path: Path) -> Installed:
    made = Installed(packages, tmp_path)
    assert "wrote" in made.lockstep("new", "app", "bank")
    return made


def test_an_application_is_made_tested_and_packaged(installed: Installed) -> None:
    found = installed.run("-c", "import lockstep; print(lockstep.__file__, lockstep.build_app)")
    assert found.startswith(str(installed.packages))
    assert "Make an app, test it, run it" in installed.lockstep("--help")
    assert installed.lockstep("--version").startswith("lockstep 0.")
    assert (installed.folder / "bank/.vscode/launch.json").exists()
    installed.lockstep("new", "saga", "loan", "--app", "bank")

    assert "4 passed" in installed.lockstep("test", "bank")
    assert "Nothing is wrong." in installed.lockstep("doctor", "--app", "bank")
    installed.lockstep("package", "bank", "--to", "dist")
    assert {path.name for path in (installed.folder / "dist").iterdir()} == {
        *("LICENSE", "function_app.py", "functions", "handlers", "host.json", "lockstep.py"),
        *("requirements.txt", "shared", ".lockstep-package"),
    }


@pytest.mark.proof
def test_mypy_sees_the_types_of_lockstep_in_the_folder_of_an_application(
    installed: Installed,
) -> None:
    assert "Success" in installed.run("-m", "mypy", at="bank")
    assert "passed" in installed.run("-m", "pytest", at="bank")

    with (installed.folder / "bank/handlers/bank.py").open("a") as module:
        module.write(MISTAKE)
    said = installed.run("-m", "mypy", at="bank", status=1)
    assert 'expression has type "Output", variable has type "int"' in said


@pytest.mark.proof
def test_an_application_runs_in_two_regions(installed: Installed) -> None:
    command: list[str | Path] = [
        sys.executable,
        installed.packages / "bin/lockstep",
        "up",
        "--app",
        "bank",
    ]
    with running_up(command, installed.folder, installed.environment) as (printed, _):
        assert "  cd bank" in printed
        settings = (installed.folder / "bank/.up/env").read_text().splitlines()
        (exported,) = [line for line in settings if "export LOCKSTEP_URL=" in line]
        east = exported.partition("=")[2].partition(",")[0]
        health, faults = (
            installed.run(installed.packages / "bin/lockstep", words, at="bank")
            for words in ("health", "faults")
        )
        sagas = installed.run(installed.packages / "bin/lockstep", "sagas", status=1, at="bank")
        functions, page, described = (
            request(f"{east}/{path}", "GET", KEY)
            for path in ("admin/functions", "api/operate", "api/openapi")
        )

    assert health.count("readable") == 2
    assert "Nothing needs attention." in faults
    # It has no sagas, so nothing of it needs Durable Functions.
    assert "Only an app that has sagas has routes of sagas." in sagas
    names = {one["name"] for one in json.loads(functions.body)}
    assert names >= {"receive", "recover", "sweep", "compact", "ingest", "health", "page"}
    for answer in (functions, page, described):
        assert answer.status == 200
        assert b"/saga" not in answer.body.lower()
    said = installed.run(installed.packages / "bin/lockstep", "health", status=3, at="bank")
    assert f"`lockstep up` of {installed.folder / 'bank'} does not run" in said

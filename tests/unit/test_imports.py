"""Importing a module does nothing: no settings are read, no socket is opened, no thread started."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    **dict.fromkeys(("shared", "functions", "spark", "cli"), ROOT),
    **dict.fromkeys(("proof.demo", "proof.simulation", "proof.testbed"), ROOT),
    "local": ROOT / "emulator",
}
MODULES = sorted(
    ".".join(path.relative_to(root).with_suffix("").parts)
    for package, root in PACKAGES.items()
    for path in (root / package.replace(".", "/")).rglob("*.py")
    if path.name not in ("__init__.py", "__main__.py")
)

PROGRAM = """
import importlib, socket, sys, threading
def refuse(*arguments, **options):
    raise AssertionError("an import opened a socket")
socket.socket.connect = socket.socket.bind = refuse
for name in sys.argv[1:]:
    importlib.import_module(name)
extra = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
assert not extra, extra
"""


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_does_nothing(package: str) -> None:
    modules = [module for module in MODULES if module.startswith(f"{package}.")]
    assert modules

    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *modules],
        env={"PATH": "/usr/bin:/bin", "HOME": "/nowhere"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr

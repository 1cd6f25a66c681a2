"""A machine for `.ci/setup`, with nothing on it but what a test puts there."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from local.testing.patience import run_patiently

SETUP = Path(__file__).parents[1] / ".ci/setup"
NEEDED = ("bash", "cat", "chmod", "cp", "dirname", "env", "grep", "mkdir", "mktemp", "rm", "sed")
NEEDED_TOO = ("touch", "perl" if shutil.which("timeout") is None else "timeout")


@dataclass(frozen=True, slots=True)
class Machine:
    """Commands that are bash programs, in folders below `root`; `root/bin` is the PATH."""

    root: Path

    @property
    def checkout(self) -> Path:
        """Where setup runs."""
        return self.root / "checkout"

    @property
    def log(self) -> list[str]:
        """What was installed, or asked for it, in order."""
        log = self.root / "log"
        return log.read_text().splitlines() if log.exists() else []

    def command(self, name: str, *lines: str, at: str = "bin") -> Path:
        """A command that does this."""
        file = self.root / at / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(("#!/usr/bin/env bash", *lines)) + "\n")
        file.chmod(0o755)
        return file

    def user(self, number: int) -> None:
        """Who runs setup."""
        self.command("id", f"echo {number}")

    def python(
        self, version: str = "3.13", *, name: str = "python3", at: str = "bin", lacks: str = "none"
    ) -> Path:
        """A Python: it makes environments that hold a copy of it, and installs by name only.

        Of pip it knows that `uv`, if it is asked for it, is what the test put into `root/index`.
        """
        is_new = tuple(map(int, version.split("."))) >= (3, 13)
        return self.command(
            name,
            "last=${@: -1}",
            'case "$*" in',
            f'  *"{lacks}"*) exit 1 ;;',
            f'  *"version_info <"*) exit {int(not is_new)} ;;',
            f'  *version_info*) echo "{version}" ;;',
            "  *ensurepip*|*Python.h*) ;;",
            '  *"-m venv"*) mkdir -p "$last/bin" && cp "$0" "$last/bin/python" ;;',
            f'  *" uv") cp {self.root}/index/uv "${{0%/*}}/uv" ;;',
            f'  *) echo "python $*" >> {self.root}/log ;;',
            "esac",
            at=at,
        )

    def uv(self, *, at: str = "bin", downloads: bool = True) -> None:
        """A uv that brings a Python, or fails as it does without a network."""
        found = self.python("3.13", at="by-uv")
        fails = "echo 'error: Failed to install'; echo '  cause: no such host'; exit 1"
        self.command(
            "uv",
            f'echo "uv $*" >> {self.root}/log',
            f'[[ "$*" != "python install 3.13" ]] || {{ {":" if downloads else fails}; }}',
            f'[[ "$*" != "python find 3.13" ]] || echo {found}',
            at=at,
        )

    def java(self, version: str, at: str = "bin") -> None:
        """A Java, as it introduces itself where options are taken from the environment."""
        said = ("Picked up JAVA_TOOL_OPTIONS: -Xmx1g", f'openjdk version "{version}"')
        self.command("java", *(f"echo '{line}' >&2" for line in said), at=at)

    def apt(self, *, release: int = 17, fails: bool = False) -> None:
        """An apt that knows one release of Java, and brings what the test put into `root/index`."""
        self.command("apt-cache", f'[[ "$2" == openjdk-{release}-jre-headless ]]')
        self.command(
            "apt-get",
            f'echo "apt-get $*" >> {self.root}/log',
            "echo 'debconf: delaying package configuration' >&2",
            f"[[ $2 == update ]] || {{ {'exit 1' if fails else ':'}; }}",
            f"[[ $2 == update || ! -d {self.root}/index ]] ||"
            f" cp {self.root}/index/* {self.root}/bin",
        )

    def setup(self, *words: str, status: int = 0, **environment: str) -> list[str]:
        """Run setup, which ends so; the lines that it says."""
        run = run_patiently(
            [self.checkout / ".ci/setup", *words],
            seconds=30,
            env={"PATH": str(self.root / "bin"), "HOME": str(self.root)} | environment,
        )
        assert run.returncode == status, run.stderr
        return run.stderr.splitlines()


def make_machine(root: Path) -> Machine:
    """A machine with a compiler, the tools of every system, and an ordinary user."""
    machine = Machine(root)
    machine.command("cc")
    for name in (*NEEDED, *NEEDED_TOO):
        found = shutil.which(name)
        assert found
        (root / "bin" / name).symlink_to(found)
    machine.user(1000)
    (machine.checkout / ".ci").mkdir(parents=True)
    shutil.copy(SETUP, machine.checkout / ".ci")
    (machine.checkout / ".ci/constraints.txt").write_text("one==1\n")
    (machine.checkout / "requirements.txt").write_text("two==2\n")
    (machine.checkout / ".ci/requirements-dev.txt").write_text("one==1\n")
    return machine

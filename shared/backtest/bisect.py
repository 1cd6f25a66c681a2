"""The first commit of an app with which a backtest finds a difference."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

NO_DIFFERENCE, DIFFERENCES = 0, 1


class BisectRefused(ValueError):
    """The commits cannot be told apart; the text says why."""


def name_first_commit(app: Path, commits: str, differs: Callable[[Path], bool]) -> str | None:
    """The first commit of `A..B` with a difference as one line, or None where B has none.

    A has none: where it has, BisectRefused is raised. `differs` says of an app's folder whether it
    has a difference; each commit is checked out in a folder that is removed in the end.
    """
    before, dots, last = commits.partition("..")
    if not (before and dots and last) or commits.startswith("-"):
        raise BisectRefused(f"--bisect takes two commits as A..B, not {commits!r}")
    top = Path(ask_git(app, "rev-parse", "--show-toplevel"))
    within = app.resolve().relative_to(top.resolve())
    listed = ask_git(app, "rev-list", "--reverse", "--first-parent", f"{before}..{last}").split()
    if not listed:
        raise BisectRefused(f"there is no commit in {commits}")
    with checked_out(top) as folder:

        def is_different(commit: str) -> bool:
            ask_git(folder, "checkout", "--quiet", "--detach", commit)
            try:
                return differs(folder / within)
            except BisectRefused as error:
                raise BisectRefused(f"with {describe_commit(top, commit)}: {error}") from None

        if not is_different(listed[-1]):
            return None
        if is_different(before):
            raise BisectRefused(f"{describe_commit(top, before)} has a difference already")
        low, high = 0, len(listed) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if is_different(listed[middle]) else (middle + 1, high)
    return describe_commit(top, listed[high])


def run_apart(module: str, words: Sequence[str]) -> Callable[[Path], bool]:
    """Ask a process of its own about an app: `python -m MODULE` with these words and `--app`.

    Modules of one commit would otherwise be taken for those of another.
    """

    def differs(app: Path) -> bool:
        command = [sys.executable, "-m", module, *words, "--app", str(app)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ourselves
        if run.returncode not in (NO_DIFFERENCE, DIFFERENCES):
            raise BisectRefused(run.stderr.strip().rpartition("\n")[2])
        return run.returncode == DIFFERENCES

    return differs


@contextmanager
def checked_out(top: Path) -> Iterator[Path]:
    """A worktree of the repository that is removed at the end, however that comes."""
    with tempfile.TemporaryDirectory(prefix="lockstep-backtest-") as parent:
        folder = Path(parent, "app")
        ask_git(top, "worktree", "add", "--quiet", "--detach", str(folder))
        try:
            yield folder
        finally:
            ask_git(top, "worktree", "remove", "--force", str(folder))


def describe_commit(top: Path, commit: str) -> str:
    return ask_git(top, "log", "-1", "--format=%h %as %an: %s", commit)


def ask_git(folder: Path, *words: str) -> str:
    """Return what git says; raises BisectRefused with its own words where it refuses."""
    command = ["git", "-C", str(folder), *words]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - words of ours
    except FileNotFoundError:
        raise BisectRefused("git is not installed") from None
    if run.returncode:
        raise BisectRefused(f"git: {run.stderr.strip()}")
    return run.stdout.strip()


def without_options(words: Sequence[str], *names: str) -> list[str]:
    """The words of a command line without these options and their values."""
    left, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in names:
            skip = True
        elif not word.startswith(tuple(f"{name}=" for name in names)):
            left.append(word)
    return left

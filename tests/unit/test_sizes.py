"""What is chosen for a run, what is run again, and what a run says at its end."""

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests import __main__ as runner
from tests.__main__ import Ended, Step, run_proof, run_steps
from tests.plugin import ROOT, find_place

WANTING = """
    import errno
    from pathlib import Path

    import pytest

    from local.testing.children import ChildFailed
    from local.testing.patience import PatienceExhausted

    TRIED = Path(__file__).with_name("tried")

    def fail_once(error):
        with TRIED.open("a") as tried:
            print(type(error).__name__, file=tried)
        if TRIED.read_text().count(type(error).__name__) == 1:
            raise error
"""
ONCE = """
    @pytest.mark.wire
    @pytest.mark.parametrize("error", [{}], ids=type)
    def test_it(error):
        fail_once(error)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of another project, whose tests are chosen and reported as ours are."""
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['wire']\n")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    return tmp_path


def step(folder: Path, *code: str) -> Step:
    """A step that runs one file of tests."""
    file = folder / "test_example.py"
    file.write_text("\n".join(map(dedent, code)), encoding="utf-8")
    return Step("example", tests=("-q", file.name))


def run(one: Step) -> Ended:
    (ended,) = run_steps([one])
    return ended


def tried(folder: Path) -> list[str]:
    return (folder / "tried").read_text().split()


@pytest.mark.slow
def test_what_wanted_time_a_port_or_a_start_is_run_once_more_and_named(folder: Path) -> None:
    errors = "PatienceExhausted('x'), ChildFailed('x'), OSError(errno.EADDRINUSE, 'in use')"

    ended = run(step(folder, WANTING, ONCE.format(errors)))

    assert ended.status == 0
    assert len(ended.again) == 3
    assert f"run again by itself: {', '.join(ended.again)}" in str(ended)
    assert sorted(tried(folder)) == sorted(2 * ["PatienceExhausted", "ChildFailed", "OSError"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("errors", "why"),
    [
        ("AssertionError('another effect')", "an assertion is never run again"),
        ("PatienceExhausted('x'), AssertionError('x')", "nor is anything beside it"),
        ("PatienceExhausted('x'), ChildFailed('x'), TimeoutExpired('x', 1), Port()", "too many"),
    ],
)
def test_anything_else_that_fails_is_not_run_again(folder: Path, errors: str, why: str) -> None:
    others = """
    from subprocess import TimeoutExpired

    class Port(PatienceExhausted):
        pass
    """

    ended = run(step(folder, WANTING, others, ONCE.format(errors)))

    assert (ended.status, ended.again) == (1, ()), why
    assert len(tried(folder)) == len(set(tried(folder)))


@pytest.mark.slow
def test_a_test_in_memory_has_nothing_to_wait_for(folder: Path) -> None:
    in_memory = ONCE.format("PatienceExhausted('x')").replace("@pytest.mark.wire", "")

    ended = run(step(folder, WANTING, in_memory))

    assert (ended.status, ended.again) == (1, ())


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would be run; what is called broken fails."""
    ran: list[str] = []

    def note(one: Step, command: object) -> tuple[int, str]:
        ran.append(one.name)
        return int(one.name == "broken"), "5 passed in 1 s"

    monkeypatch.setattr(runner, "run", note)
    return ran


def test_the_first_red_step_is_the_last(
    monkeypatch: pytest.MonkeyPatch, commands: list[str]
) -> None:
    steps = tuple(Step(name, ("x",)) for name in ("lint", "broken", "tests"))
    monkeypatch.setattr(runner, "CHECK", steps)

    assert runner.main(["check"]) == 1
    assert commands == ["lint", "broken"]


def test_a_proof_runs_all_parts_and_writes_what_became_of_them(
    monkeypatch: pytest.MonkeyPatch, commands: list[str], tmp_path: Path
) -> None:
    page = tmp_path / "proof-run.md"
    monkeypatch.setattr(runner, "PAGE", page)
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    monkeypatch.setattr(runner, "describe", lambda endings: "\n".join(map(str, endings)))
    parts = [Step(name, ("x",)) for name in ("lint", "broken", "chaos")]

    assert run_proof(parts, ["chaos"]) == 0
    assert not page.exists()
    assert run_proof(parts, None) == 1
    assert commands == ["chaos", "lint", "broken", "chaos"]
    assert "=== broken: FAILED with exit status 1" in page.read_text()


def test_the_dearest_files_come_first() -> None:
    names = ("unit/test_a.py", "e2e/test_b.py", "spark/test_c.py", "wire/test_d.py")

    ours = [f"tests/{name}::test" for name in names]

    assert sorted(["emulator/tests/wire/test_e.py::test", *ours], key=find_place) == [
        "tests/spark/test_c.py::test",
        "tests/e2e/test_b.py::test",
        "emulator/tests/wire/test_e.py::test",
        "tests/wire/test_d.py::test",
        "tests/unit/test_a.py::test",
    ]


def test_the_last_line_of_a_step_names_no_folder_of_the_machine() -> None:
    program = f"print({str(ROOT / 'report.html')!r})"

    assert runner.run(Step("demo"), (sys.executable, "-c", program)) == (0, "report.html")

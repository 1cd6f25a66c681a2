"""`.ci/setup` looks for an interpreter before anything else, and installs nothing without one."""

from pathlib import Path

import pytest

from tests.setup_machine import Machine, make_machine

WAYS = (
    "pyenv install 3.13",
    "python3.13-venv and python3.13-dev",
    "UV_PYTHON_INSTALL_MIRROR",
    "PYTHON=/path/to/python",
)
ASKED = ["uv python install 3.13", "uv python find 3.13"]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine that lacks nothing but Python 3.13, where root might install everything."""
    machine = make_machine(tmp_path)
    machine.user(0)
    machine.apt()
    machine.java("17")
    return machine


def assert_made_of(machine: Machine, python: Path, said: list[str]) -> None:
    """This interpreter was taken, and nothing but the pins was installed."""
    assert f"setup: making .venv of {python}" in said
    assert (machine.checkout / ".venv/ready").exists()
    assert not [line for line in machine.log if line.startswith("apt-get")]


@pytest.mark.parametrize(
    ("name", "version"), [("python3.14", "3.14"), ("python3.13", "3.13"), ("python3", "3.15")]
)
def test_it_is_found_on_the_path(machine: Machine, name: str, version: str) -> None:
    python = machine.python(version, name=name)

    said = machine.setup()

    assert_made_of(machine, python, said)
    assert said[1:] == [
        "setup: installing 2 pinned packages into .venv, which takes a few minutes the first time"
    ]
    pip, *others = machine.log
    assert pip.endswith(" --no-compile -r .ci/requirements-dev.txt -qq")
    checkout = next(line for line in others if line.endswith(" -e . -qq"))
    assert "--no-deps --no-build-isolation -e emulator" in checkout
    # One goes on beside the other.
    compiling, recording = sorted({*others} - {checkout})
    assert compiling.startswith("python -m compileall -qq -x ")
    assert recording == "python -m spark.class_archive"


@pytest.mark.parametrize("folder", [".pyenv/versions/3.13.0", ".local/share/uv/python/cpython"])
def test_it_is_found_at_home(machine: Machine, folder: str) -> None:
    machine.python("3.11")
    python = machine.python("3.13", name="python", at=f"{folder}/bin")

    assert_made_of(machine, python, machine.setup())


@pytest.mark.parametrize("home", ["", "/a folder that is not there"])
def test_a_home_is_not_needed(machine: Machine, home: str) -> None:
    python = machine.python()

    assert_made_of(machine, python, machine.setup(HOME=home))


def test_an_environment_that_is_there_is_kept(machine: Machine) -> None:
    machine.python()
    machine.setup()
    (machine.root / "bin/python3").unlink()

    said = machine.setup()

    assert "making" not in "".join(said)


def test_the_one_that_is_named_comes_before_those_that_are_found(machine: Machine) -> None:
    machine.python()
    python = machine.python(at="elsewhere")

    assert_made_of(machine, python, machine.setup(PYTHON=str(python)))


@pytest.mark.parametrize("named", ["python3.11", "/no/such/python"])
def test_one_that_is_named_and_too_old_is_not_replaced(machine: Machine, named: str) -> None:
    machine.python()
    machine.python("3.11", name="python3.11")

    (said,) = machine.setup(status=1, PYTHON=named)

    assert said == f"setup: PYTHON={named} is no Python 3.13 or newer: change or unset it"
    assert machine.log == []


@pytest.mark.parametrize("at", ["bin", "index"])
def test_without_one_uv_downloads_it_and_is_installed_for_that(machine: Machine, at: str) -> None:
    machine.python("3.11")
    machine.uv(at=at)

    said = machine.setup()

    assert said[0] == (
        "setup: found no Python 3.13 or newer: downloading one by uv, for 6 minutes at most"
    )
    assert machine.log[:2] == ASKED
    assert_made_of(machine, machine.root / "by-uv/python3", said)


@pytest.mark.parametrize("at", ["bin", "index"])
def test_where_uv_cannot_one_line_has_every_way_and_nothing_is_installed(
    machine: Machine, at: str
) -> None:
    (machine.root / "bin/cc").unlink()
    machine.python("3.11")
    machine.uv(at=at, downloads=False)

    assert_every_way_is_named(machine, "uv could not download one (no such host)")
    assert machine.log == ASKED[:1]


def assert_every_way_is_named(machine: Machine, why: str) -> None:
    """Setup fails and says in one line why, and what a person can do."""
    _, said = machine.setup(status=1)
    assert why in said
    assert all(way in said for way in WAYS)


def test_where_uv_cannot_be_installed_the_line_says_that(machine: Machine) -> None:
    machine.python("3.11")

    assert_every_way_is_named(machine, "uv could not be installed (")
    assert machine.log == []


def test_without_any_python_there_is_nothing_to_install_uv_by(machine: Machine) -> None:
    assert_every_way_is_named(machine, "there is neither uv nor a python3 to install it")
    assert machine.log == []


@pytest.mark.parametrize(
    ("lacks", "missing"),
    [
        ("ensurepip", "the module venv of {0}: install what is missing (packages of Debian: "),
        ("Python.h", "Python.h of {0}: install what is missing (packages of Debian: "),
    ],
)
def test_an_ordinary_user_is_told_what_a_distribution_left_out(
    machine: Machine, lacks: str, missing: str
) -> None:
    machine.user(1000)
    python = machine.python("3.14", lacks=lacks)

    (said,) = machine.setup(status=1)

    package = {"ensurepip": "python3.14-venv", "Python.h": "python3.14-dev"}[lacks]
    assert said.startswith(f"setup: missing {missing.format(python)}{package})")


def test_an_ordinary_user_is_told_everything_at_once(machine: Machine) -> None:
    machine.user(1000)
    machine.python(lacks="Python.h")
    for name in ("cc", "java"):
        (machine.root / "bin" / name).unlink()

    (said,) = machine.setup(status=1)

    assert "Python.h" in said
    assert "a C compiler, Java 17 or newer" in said
    assert "python3.13-dev gcc libc6-dev openjdk-17-jre-headless" in said
    assert not (machine.checkout / ".venv").exists()


def test_root_gets_everything_at_once(machine: Machine) -> None:
    machine.python()
    for name in ("cc", "java"):
        (machine.root / "bin" / name).unlink()
    machine.command("cc", at="index")
    machine.java("17", at="index")

    machine.setup()

    assert machine.log[:2] == [
        "apt-get -qq update",
        "apt-get -qq install -y gcc libc6-dev openjdk-17-jre-headless",
    ]

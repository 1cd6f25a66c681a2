"""`.ci/setup tests` adds what only tests need, and goes on without what cannot be had."""

from pathlib import Path

import pytest

from tests.setup_machine import Machine, make_machine

ONLY_FOR_TESTS = ("chromium", "curl", "npm")
INSTALLS = "python emulator/tests/wire/packages.py"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine that has what runs Lockstep, and nothing that only tests need."""
    machine = make_machine(tmp_path)
    machine.python()
    machine.java("17")
    return machine


def test_what_runs_lockstep_asks_for_nothing_that_only_tests_need(machine: Machine) -> None:
    machine.user(0)
    machine.apt()

    said = "".join(machine.setup())

    assert not [name for name in ONLY_FOR_TESTS if name in said]
    assert not [line for line in machine.log if line.startswith("apt-get") or line == INSTALLS]
    assert not (machine.checkout / ".venv/ready-for-tests").exists()


def test_root_gets_what_tests_need_as_well(machine: Machine) -> None:
    machine.user(0)
    machine.apt()
    for name in ONLY_FOR_TESTS:
        machine.command(name, at="index")

    said = machine.setup("tests")

    assert "apt-get -qq install -y chromium" in machine.log
    assert machine.log.count("apt-get -qq update") == 1
    assert INSTALLS in machine.log
    assert not [line for line in said if "will not run" in line]
    assert (machine.checkout / ".venv/ready-for-tests").exists()


def test_an_ordinary_user_is_told_which_tests_will_not_run(machine: Machine) -> None:
    said = machine.setup("tests")

    left_out = [line for line in said if "will not run" in line]
    assert [line.split(" is not installed, so ") for line in left_out] == [
        ["setup: chromium", "tests of the operations page in a browser will not run"],
        ["setup: curl", "tests of what `make up` prints will not run"],
        ["setup: npm", "tests of JavaScript's SDKs and rhea will not run"],
    ]
    assert INSTALLS in machine.log
    assert (machine.checkout / ".venv/ready-for-tests").exists()


def test_so_is_root_where_apt_has_no_such_package(machine: Machine) -> None:
    machine.user(0)
    machine.apt(fails=True)

    said = machine.setup("tests")

    assert len([line for line in said if "will not run" in line]) == len(ONLY_FOR_TESTS)
    assert INSTALLS in machine.log


def test_nothing_goes_on_in_the_background_where_pip_fails(machine: Machine) -> None:
    machine.user(0)
    machine.apt()
    machine.python(lacks="requirements-dev")

    said = machine.setup("tests", status=1)

    assert said[-1] == "setup: pip could not install .ci/requirements-dev.txt into .venv"
    assert INSTALLS not in machine.log
    assert len([line for line in machine.log if " install " in line]) == len(ONLY_FOR_TESTS)


def test_what_is_prepared_is_not_prepared_again(machine: Machine) -> None:
    machine.setup()
    before = machine.log

    machine.setup("tests")

    assert machine.log == [*before, INSTALLS]


def test_other_words_are_refused(machine: Machine) -> None:
    assert machine.setup("test", status=1) == ["setup: there is no test to set up, only tests"]
    assert machine.log == []


def test_without_an_interpreter_nothing_is_installed_for_tests_either(machine: Machine) -> None:
    machine.user(0)
    machine.apt()
    (machine.root / "bin/python3").unlink()

    assert "no Python 3.13 or newer is on PATH" in machine.setup("tests", status=1)[-1]
    assert machine.log == []

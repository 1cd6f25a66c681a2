"""Packages that others wrote are installed by the setup; a test without them is not run."""

from dataclasses import replace
from pathlib import Path

import pytest

from wire import packages as module
from wire.packages import JAVASCRIPT, PYTHON, Packages, find_packages, find_program, main

# Installs a file that says how many tries it took, if it is let to.
INSTALLER = """
echo x >> ../../../tries
[[ $(grep -c x ../../../tries) -ge {tries} ]] || {{ printf 'no such\\nhost' >&2; exit 1; }}
cp pins.txt installed.txt
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for packages, and no pause between tries."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(module, "HERE", tmp_path)
    return tmp_path / "cache"


def some_packages(folder: Path, succeeds_in: int) -> Packages:
    """Packages that can be had in this try."""
    (folder / "pins.txt").write_text("one==1\n")
    command = ("bash", "-c", INSTALLER.format(tries=succeeds_in))
    return Packages("some", folder / "pins.txt", command, "the one")


@pytest.mark.parametrize("packages", [PYTHON, JAVASCRIPT], ids=lambda packages: packages.kind)
@pytest.mark.parametrize("ci", ["", "true"])
def test_without_them_a_test_is_not_run_in_ci_either(
    packages: Packages, ci: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(module, "HERE", Path(module.__file__).parent)

    with pytest.raises(pytest.skip.Exception, match=f"^not run: .*{packages.pins.name}"):
        find_packages(packages)


@pytest.mark.parametrize("ci", ["", "true"])
def test_without_a_program_a_test_is_not_run_in_ci_either(
    ci: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)

    with pytest.raises(pytest.skip.Exception, match=r"^not run: no-such-node is not installed"):
        find_program("no-such-node")


@pytest.mark.parametrize("tries", [1, 3])
def test_they_are_installed_once_and_found(
    tries: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packages = some_packages(tmp_path, succeeds_in=tries)

    main((packages,))
    main((packages,))

    assert (find_packages(packages) / "installed.txt").read_text() == "one==1\n"
    assert len((tmp_path / "cache/tries").read_text().split()) == tries
    assert capsys.readouterr().err == (
        "setup: installing the packages of pins.txt, which tests run\n"
    )


def test_without_the_program_that_installs_them_nothing_is_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packages = some_packages(tmp_path, succeeds_in=1)

    main((replace(packages, command=("no-such-npm", "install")),))

    assert not packages.folder.exists()
    assert capsys.readouterr().err == ""


def test_other_pins_are_other_packages(tmp_path: Path) -> None:
    packages = some_packages(tmp_path, succeeds_in=1)
    main((packages,))

    packages.pins.write_text("one==2\n")

    with pytest.raises(pytest.skip.Exception):
        find_packages(packages)


def test_after_the_last_try_one_line_says_what_will_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packages = some_packages(tmp_path, succeeds_in=4)

    main((packages,))

    _, said = capsys.readouterr().err.splitlines()
    assert said == (
        "setup: the packages of pins.txt cannot be had in 3 tries, so tests of the one will not "
        "run: no such host"
    )
    assert not packages.folder.exists()
    assert list(packages.folder.parent.iterdir()) == []

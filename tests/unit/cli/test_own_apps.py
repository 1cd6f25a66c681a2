"""An app in a folder of its own: written from templates, tested, packaged."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.__main__ import main
from cli.folders import ROOT, words_of
from tests.unit.cli.conftest import Run

pytestmark = pytest.mark.slow


SETTINGS = {
    "LOCKSTEP_REGION": "east",
    "LOCKSTEP_REGIONS": "east",
    "ServiceBus_east": "Endpoint=sb://nowhere/",
    "Cosmos": "AccountEndpoint=http://nowhere/;AccountKey=bm90aGluZw==;",
}
PROGRAM = """
import json, function_app as a, functions.app
names = sorted(f.get_function_name() for f in a.app.get_functions())
print(json.dumps([functions.app.__file__, sorted(a.handlers.by_type), names]))
"""


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    folder = tmp_path / "bank"
    assert main(["new", "app", str(folder)]) == 0
    return folder


def describe_app(folder: Path) -> tuple[Path, list[str], list[str]]:
    """Where the app in a folder has Lockstep from, its message types and its functions."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | SETTINGS
    # -B: the tests list the folder, and Python would leave its compiled modules there.
    command = [sys.executable, "-B", "-c", PROGRAM]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True)
    source, types, names = json.loads(run.stdout)
    return Path(source), types, names


def test_what_is_written_passes_its_own_tests(
    bank: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert main(["new", "handler", "loan", "--app", str(bank)]) == 0
    assert main(["new", "saga", "move-money", "--app", str(bank)]) == 0

    status = main(["test", str(bank), "--", "-q", "-p", "no:cacheprovider"])

    assert status == 0
    assert "6 passed" in capfd.readouterr().out


def test_a_broken_handler_fails_its_own_tests(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    module = bank / "handlers/bank.py"
    module.write_text(module.read_text().replace("state.total + body.amount", "body.amount"))

    assert main(["test", str(bank), "--", "-q", "-p", "no:cacheprovider"]) == 1


def test_a_package_runs_without_the_checkout_and_has_no_handlers_but_its_own(
    bank: Path, tmp_path: Path
) -> None:
    (bank / "requirements.txt").write_text("holidays==0.99\n")
    target = tmp_path / "dist"

    assert main(["package", str(bank), "--to", str(target)]) == 0
    # Again: what an earlier package left is replaced.
    (target / "old.py").touch()
    assert main(["package", str(bank), "--to", str(target)]) == 0

    source, types, functions = describe_app(target)
    assert source == target / "functions/app.py"
    assert types == ["bank.add"]
    # It has no sagas: nothing of it needs Durable Functions, and the host loads none of it.
    assert functions == [name for name in describe_app(ROOT)[2] if "saga" not in name]
    host, shipped = (json.loads((place / "host.json").read_text()) for place in (target, ROOT))
    assert host["extensionBundle"]["id"] == "Microsoft.Azure.Functions.ExtensionBundle"
    shipped["extensions"].pop("durableTask")
    assert host == shipped | {"extensionBundle": host["extensionBundle"]}
    assert {path.name for path in target.iterdir()} == {
        *("LICENSE", "function_app.py", "functions", "handlers", "host.json", "lockstep.py"),
        *("requirements.txt", "shared", ".lockstep-package"),
    }
    requirements = (target / "requirements.txt").read_text()
    assert requirements == (ROOT / "requirements.txt").read_text() + "holidays==0.99\n"


def test_a_package_with_sagas_has_the_host_file_that_sagas_need(
    bank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, host = tmp_path / "dist", bank / "host.json"
    assert main(["new", "saga", "move-money", "--app", str(bank)]) == 0

    assert main(["package", str(bank), "--to", str(target)]) == 0

    assert (target / "host.json").read_bytes() == (ROOT / "host.json").read_bytes()
    assert describe_app(target)[2] == describe_app(ROOT)[2]

    whole = json.loads(host.read_text())
    whole["extensions"].pop("durableTask")
    host.write_text(json.dumps(whole))
    assert main(["package", str(bank), "--to", str(target)]) == 1
    assert "its host.json has no extensions.durableTask" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("handlers/bad.py", "import nothing_such\n", "Error: No module named 'nothing_such'"),
        ("handlers/bad.py", "while True:\n    pass\n", "it was not loaded in 2 s"),
        ("handlers/bad.py", "import os\nos._exit(3)\n", "it says nothing"),
        ("local.config.json", "{}", "local.config.json cannot be read: KeyError('Hosts')"),
    ],
)
def test_when_an_app_cannot_be_loaded_its_package_says_why(
    file: str,
    text: str,
    why: str,
    bank: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (bank / file).write_text(text)
    if "2 s" in why:
        monkeypatch.setattr("cli.folders.LOAD_SECONDS", 2.0)

    assert main(["package", str(bank), "--to", str(tmp_path / "dist")]) == 1

    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(why)


def test_a_package_whose_packages_cannot_be_had_makes_no_zip(
    bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = subprocess.CompletedProcess[bytes]([], 1)
    monkeypatch.setattr("cli.folders.needs_durable", lambda *_: False)
    monkeypatch.setattr("cli.folders.subprocess.run", lambda *_, **__: failed)

    assert main(["package", str(bank), "--to", str(tmp_path / "dist"), "--prebuilt"]) == 1

    assert "pip could not install the packages" in capsys.readouterr().err
    assert not (tmp_path / "dist.zip").exists()


def test_up_without_the_emulator_says_in_one_line_how_it_is_installed(
    bank: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "cli.up", raising=False)
    monkeypatch.setitem(sys.modules, "local.testing.failures", None)

    assert main(["up", "--app", str(bank)]) == 1

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lockstep: Azure on one machine is not installed")
    assert "pip install ./emulator" in line


@pytest.mark.parametrize("name", ["Bank", "2nd", "ba/nk", "class", "b" * 41, "-x"])
def test_a_name_that_no_module_can_have_is_refused(name: str) -> None:
    with pytest.raises(Exception, match="cannot be the name"):
        words_of(name)


def read_all(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["new", "app", "BANK"], "nothing was written"),
        (["new", "handler", "bank", "--app", "BANK"], "nothing was written"),
        (["package", "BANK", "--to", "MINE"], "holds no package"),
        (["test", "MINE"], "MINE is no app"),
        (["package", "MINE"], "MINE is no app"),
        (["new", "handler", "x", "--app", "MINE"], "MINE is no app"),
    ],
)
def test_what_would_write_over_something_or_is_no_app_is_refused_by_name(
    words: list[str], why: str, bank: Path, tmp_path: Path, run: Run
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter.txt").write_text("dear")
    before = read_all(tmp_path)
    places = {"BANK": str(bank), "MINE": str(mine)}

    status, _, error = run(*(places.get(word, word) for word in words))

    assert (status, why.replace("MINE", str(mine)) in error) == (2, True), error
    assert read_all(tmp_path) == before

"""What `up` looks at before and while an app runs, and how other commands find it."""

import json
import os
import runpy
import socket
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from cli.cloud import NO_SETTINGS, keep_up
from cli.failures import CommandFailed, Misuse, NoAnswer
from cli.folders import ROOT, require_app, write_app
from cli.regions import CONFIG
from cli.running import UP_MARKER, find_up, run_directory
from cli.trial import locate_failure, try_app
from cli.up import choose_ports, write_marker
from local.testing.children import ChildFailed
from local.testing.cloud import CloudProcess
from local.testing.control import ControlRefused
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_app import running_app

type Shop = Path


@pytest.fixture
def shop() -> Shop:
    write_app(Path("shop"))
    return Path("shop").resolve()


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("\ndef x(:\n", "handlers/more.py:2", "SyntaxError: invalid syntax"),
        (
            "import nothere\n",
            "handlers/more.py:1",
            "ModuleNotFoundError: No module named 'nothere'",
        ),
        ("import json\n\njson.loads('{')\n", "handlers/more.py:3", "JSONDecodeError: Expecting"),
        ("raise SystemExit(3)\n", "handlers/more.py:1", "SystemExit: 3"),
        ("raise ValueError('a\\n  b')\n", "handlers/more.py:1", "ValueError: a b"),
        (
            "class Odd(Exception):\n    def __str__(self):\n        return 1 / 0\nraise Odd\n",
            "handlers/more.py:4",
            "Odd: its text cannot be told, because of ZeroDivisionError",
        ),
    ],
)
def test_what_cannot_be_imported_is_told_with_the_line_of_the_apps_own_file(
    text: str, place: str, said: str, shop: Shop
) -> None:
    (shop / "handlers/more.py").write_text(text)
    # Packages may lie in the app's folder, and are not the app's.
    main = "import runpy\nrunpy.run_path('handlers/more.py')\n".replace(
        "handlers", f"{shop}/handlers"
    )
    (shop / "function_app.py").write_text(main)

    with pytest.raises(BaseException) as caught:  # noqa: PT011 - whatever a stranger raises
        runpy.run_path(str(shop / "function_app.py"))

    failed = locate_failure(shop, caught.value)
    assert f"{failed['file']}:{failed['line'][0]}" == place
    assert failed["error"].startswith(said)


@pytest.mark.slow
def test_an_app_is_tried_in_a_process_of_its_own(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = shop / "handlers/shop.py"
    sound = module.read_text()
    # What it prints is its own affair; the settings are those of a host.
    module.write_text(
        f"import os\nprint(os.environ['LOCKSTEP_REGION'], os.environ['OWN'])\n{sound}"
    )
    assert try_app(shop, CONFIG, {"OWN": "1"}) == {"handlers/shop.py": ["shop.add"]}

    module.write_text(f"{sound}import os\nprint('bye', flush=True)\nos._exit(4)\n")
    with pytest.raises(CommandFailed, match="to import it ended the process, with status 4\nbye"):
        try_app(shop, CONFIG, {})
    monkeypatch.setattr("cli.trial.TRIAL_SECONDS_MAX", 1.0)
    module.write_text("while True:\n    input()\n")
    # Nobody is asked for input.
    with pytest.raises(CommandFailed, match=r"took longer than 1 s|EOFError"):
        try_app(shop, CONFIG, {})
    module.write_text("while True:\n    pass\n")
    with pytest.raises(CommandFailed, match="to import it took longer than 1 s"):
        try_app(shop, CONFIG, {})


def test_the_app_of_a_folder_is_the_nearest_above_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Misuse, match=r"no function_app\.py is in this folder or in one above it"):
        require_app(Path())

    monkeypatch.chdir(shop / "handlers")
    assert require_app(Path()) == shop


@pytest.mark.parametrize("command", ["up", "test", "package"])
def test_a_folder_without_an_app_runs_no_other_one(command: str, run: Run) -> None:
    status, _, error = run(command)

    assert (status, "`lockstep new app NAME` makes" in error) == (2, True), error
    assert not Path(".up").exists()


def test_a_command_finds_the_up_of_its_folder_and_says_where_that_does_not_run(
    shop: Shop, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_up() is None
    monkeypatch.chdir(shop / "tests")
    status: dict[str, Any] = {
        "region": "east",
        "journal": "readable",
        "missing": {},
        "heartbeats": None,
    }
    with running_app(lambda asked: (200 if asked.key == "k" else 401, status)) as app:
        with run_directory(shop / ".up", UP_MARKER, maker="x", is_fresh=False) as marker:
            with pytest.raises(NoAnswer, match="is still starting"):
                find_up()
            write_marker(marker, {"port_base": 1, "url": app.url, "key": "k"})
            found = run("health")
            other = run("--url", "http://127.0.0.1:1", "health")
            monkeypatch.setenv("LOCKSTEP_URL", app.url)
            named = run("health")
            monkeypatch.delenv("LOCKSTEP_URL")
        stale = run("health")

    assert (found[0], "readable" in found[1]) == (0, True)
    # What is said goes before what is found, and so does its key.
    assert (other[0], "127.0.0.1:1" in other[1]) == (3, True)
    # What runs here lends its key to no other app.
    assert (named[0], "does not take the key" in named[1] + named[2]) == (1, True), named
    assert stale[0] == 3
    assert f"`lockstep up` of {shop} does not run" in stale[2]


def test_ports_are_those_of_the_last_time_unless_another_program_has_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with run_directory(tmp_path / "up", UP_MARKER, maker="x", is_fresh=False) as marker:
        first = choose_ports(marker, CONFIG, None)
        assert choose_ports(marker, CONFIG, None) == first
        with socket.create_server(("127.0.0.1", first + 10)):
            with pytest.raises(CommandFailed, match=f"the ports {first} to {first + 10}: "):
                choose_ports(marker, CONFIG, first)
            second = choose_ports(marker, CONFIG, None)
        assert second != first
        assert "another program listens on a port of the last time" in capsys.readouterr().err
        assert choose_ports(marker, CONFIG, None) == second
        assert choose_ports(marker, CONFIG, first) == first


class Regions:
    """A cloud of three regions, whose hosts are told what to do until it ends."""

    regions = ("east", "west", "north")

    def __init__(self, lost: str, module: Path) -> None:
        self.lost, self.module, self.polls = lost, module, 0
        self.acts: list[tuple[str, str]] = []
        self.child = cast(Any, self)
        self.control = cast(Any, self)

    @property
    def is_running(self) -> bool:
        self.polls += 1
        if self.polls == 2:
            self.module.write_text("changed")
        return self.polls < 4

    def failure(self, what: str) -> ChildFailed:
        return ChildFailed(what)

    def act(self, region: str, action: str) -> None:
        self.acts.append((region, action))
        if (region, action) == (self.lost, "start"):
            raise ControlRefused("it does not start")


def reload_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str, error: str | None
) -> Regions:
    monkeypatch.setattr("cli.cloud.time", SimpleNamespace(sleep=lambda _: None))
    module = tmp_path / "bank.py"
    module.write_text("before")
    os.utime(module, (1, 1))
    cloud = Regions(lost, module)

    def require_code() -> Mapping[str, str]:
        if error:
            raise CommandFailed(error)
        return NO_SETTINGS

    with pytest.raises(ChildFailed):
        keep_up(cast(CloudProcess, cloud), [tmp_path], require_code)
    return cloud


def test_a_region_that_does_not_start_leaves_the_others_with_the_code_that_they_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = reload_once(tmp_path, monkeypatch, "west", None)

    acts = [(region, act) for region in ("east", "west") for act in ("stop", "start")]
    assert cloud.acts == acts
    assert capsys.readouterr().out.splitlines() == [
        "bank.py changed",
        "east runs the new code",
        "west does not run: it does not start",
        "the code that was before it goes on in north",
    ]


def test_code_that_cannot_be_imported_stops_no_region(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = reload_once(tmp_path, monkeypatch, "", "bank.py:1: SyntaxError: invalid syntax")

    assert cloud.acts == []
    assert "bank.py:1: SyntaxError: invalid syntax\n" in capsys.readouterr().out


def test_a_queue_that_is_nowhere_is_named_with_its_line(shop: Shop, run: Run) -> None:
    with (shop / "handlers/shop.py").open("a") as module:
        line = len((shop / "handlers/shop.py").read_text().splitlines())
        module.write("FRAME = 'mainframe'\nGOOD = 'lockstep-out'\n")
        for to in ("FRAME", "'bills'", "GOOD", "HERE", "OUTPUTS", "'$here'", "find(1)"):
            module.write(f"def f(): return lockstep.Output('a', None, to={to})\n")

    status, out, _ = run("doctor", "--app", str(shop), "--json")

    wrong = [one["wrong"] for one in json.loads(out)["findings"]]
    assert wrong == [
        f"shop/handlers/shop.py:{line + 3}: there is no queue or topic 'mainframe'",
        f"shop/handlers/shop.py:{line + 4}: there is no queue or topic 'bills'",
    ]
    assert status == 1
    # An app that has them declares them.
    config = json.loads(CONFIG.read_text())
    config["UserConfig"]["Namespaces"][1]["Topics"] = [{"Name": "mainframe"}, {"Name": "bills"}]
    (shop / CONFIG.name).write_text(json.dumps(config))
    assert json.loads(run("doctor", "--app", str(shop), "--json")[1])["findings"] == []
    for text, why in (("{", "is no configuration"), ("{}", "there is no UserConfig")):
        (shop / CONFIG.name).write_text(text)
        status, _, error = run("test", str(shop))
        assert (status, why in error) == (1, True), error


def test_what_is_written_names_its_paths_as_the_reader_does_and_is_well_formed(run: Run) -> None:
    status, out, _ = run("new", "app", "shop")

    lines = out.splitlines()
    paths = [Path(line.removeprefix("wrote ")) for line in lines if line.startswith("wrote ")]
    assert status == 0
    assert all(path.is_file() and not path.is_absolute() for path in paths)
    assert set(paths) == {path for path in Path("shop").rglob("*") if path.is_file()}
    assert lines[len(paths) + 1 :] == ["  cd shop", "  lockstep test", "  lockstep up --reload"]
    workflow = yaml.safe_load(Path("shop/.github/workflows/test.yml").read_text())
    steps = [step.get("run", "") for step in workflow["jobs"]["test"]["steps"]]
    assert steps[2] == 'pip install "lockstep[dev] @ $LOCKSTEP"'
    assert steps[-2:] == ["lockstep test", "mypy"]
    for path in Path("shop/.vscode").iterdir():
        text = path.read_text()
        json.loads("".join(one for one in text.splitlines() if not one.lstrip().startswith("//")))
    assert "${workspaceFolder}" in Path("shop/.vscode/launch.json").read_text()


def test_the_version_and_defaults_of_help_name_no_place_of_this_machine(run: Run) -> None:
    assert run("--version")[:2] == (0, "lockstep 0.1.0\n")
    for command in ("up", "test", "package", "doctor", "backtest"):
        assert str(ROOT) not in run(command, "--help")[1]

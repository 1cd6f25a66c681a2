"""What is deployed: the app whole, nothing else, once per region."""

import re
from fnmatch import fnmatch
from importlib.metadata import requires, version

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cli.folders import MACHINES
from tests.infra.parity import ROOT
from tests.infra.snapshots import only, read_snapshot, regions_of

SHIPPED_FILES = ["LICENSE", "function_app.py", "host.json", "lockstep.py", "requirements.txt"]
SHIPPED_FOLDERS = ["functions", "shared"]


def pins(name: str) -> dict[str, str]:
    """The versions that a file of requirements or constraints pins, by canonical name."""
    found = re.findall(
        r"^([\w.-]+)==(\S+)$", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE
    )
    return {canonicalize_name(package): pinned for package, pinned in found}


def needed_with(package: str) -> set[str]:
    """A package and all that it needs, on this machine, by canonical name."""
    found: set[str] = set()
    waiting = [(package, "")]
    seen = set(waiting)
    while waiting:
        name, extra = waiting.pop()
        found.add(name)
        for line in requires(name) or []:
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                following = {(canonicalize_name(need.name), one) for one in ("", *need.extras)}
                waiting += following - seen
                seen |= following
    return found


def ignore_patterns() -> list[str]:
    lines = (ROOT / ".funcignore").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def ignored_by(path: str) -> list[str]:
    """Patterns that leave a path out, read as azd does (any part) or as func does (a prefix)."""
    return [
        pattern
        for pattern in ignore_patterns()
        if any(fnmatch(part, pattern) for part in path.split("/"))
        or re.match(re.escape(pattern).replace(r"\*", "[^/]+"), path)
    ]


def test_nothing_the_app_needs_is_left_at_home() -> None:
    modules = [
        str(path.relative_to(ROOT))
        for folder in SHIPPED_FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".typed", ".html")
    ]

    assert "shared/py.typed" in modules
    assert {path: ignored_by(path) for path in SHIPPED_FILES + modules if ignored_by(path)} == {}


def test_every_entry_of_the_checkout_is_either_shipped_or_left_at_home() -> None:
    """Whatever .funcignore does not name is deployed: README.md, tools and Makefile once were."""
    entries = {path.name for path in ROOT.iterdir()}

    shipped = {name for name in entries if not ignored_by(name)}

    assert shipped == {*SHIPPED_FILES, *SHIPPED_FOLDERS}, "name what stays at home in .funcignore"


def test_what_git_does_not_track_stays_at_home_and_what_tools_need_is_tracked() -> None:
    untracked = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    generated = [name.strip("/") for name in untracked if "*" not in name]

    assert generated
    assert {name for name in generated if not ignored_by(name)} == set()
    for name in (".vscode/tasks.json", ".devcontainer/devcontainer.json", "shared/py.typed"):
        assert (ROOT / name).exists()
        assert not {name.split("/")[0], name.split("/")[-1]} & set(generated)


def test_a_prebuilt_package_is_for_the_python_that_the_apps_run() -> None:
    app = only(read_snapshot(), "Microsoft.Web/sites", "east")

    runtime = app["properties"]["functionAppConfig"]["runtime"]

    assert (runtime["name"], runtime["version"]) == ("python", MACHINES[1])


def test_azd_publishes_to_the_app_of_each_region() -> None:
    services = yaml.safe_load((ROOT / "azure.yaml").read_text(encoding="utf-8"))["services"]

    # The project is where azd runs the hooks, and `dist` within it is what it publishes.
    assert {
        name: (service["project"], service["dist"], service["remoteBuild"])
        for name, service in services.items()
    } == {name: (".", f"dist/{name}", False) for name in regions_of(read_snapshot())}


def test_the_library_that_finds_the_functions_is_deployed_with_the_app() -> None:
    """Without it the worker uses a copy of its own, 1.1.0b1 in Core Tools 4.6.0, and finds nothing.

    That copy meets the retry policies with another protobuf than theirs and stops at `Fail to
    convert to Duration`; the app then starts with 0 functions, and no error but a line in the log.
    """
    pinned = pins("requirements.txt")["azure-functions-runtime"]

    assert tuple(map(int, pinned.split("."))) >= (1, 3, 0)


def test_every_package_that_is_deployed_has_one_version() -> None:
    """Not only the direct ones: a deployment next year installs what was tested this year."""
    pinned = pins("requirements.txt")

    needed = {name: version(name) for package in pinned for name in needed_with(package)}

    assert {"azure-core", "durabletask", "grpcio", "msal", "protobuf"} <= needed.keys()
    assert pinned == needed
    assert not pinned.keys() & pins(".ci/constraints.txt").keys()


def test_the_lock_has_the_hashes_of_every_package_that_is_deployed_in_the_same_versions() -> None:
    needed = {
        name: version(name) for package in pins("requirements.txt") for name in needed_with(package)
    }
    lock = (ROOT / "infra/requirements.lock").read_text(encoding="utf-8")

    locked = {}
    for entry in lock.replace("\\\n", " ").splitlines():
        pin, *hashes = entry.split()
        assert hashes, pin
        assert all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", one) for one in hashes), pin
        name, _, pinned = pin.partition("==")
        locked[canonicalize_name(name)] = pinned

    assert locked == needed, "write it anew with `make lock`"


def test_a_deployment_reads_one_file_and_none_names_an_index() -> None:
    lines = {
        name: (ROOT / name).read_text(encoding="utf-8").splitlines()
        for name in (
            *("requirements.txt", "cli/requirements.txt", "cli/requirements-dev.txt"),
            *("spark/requirements.txt", ".ci/requirements-dev.txt", ".ci/constraints.txt"),
        )
    }
    options = {line for found in lines.values() for line in found if line.startswith("-")}

    assert not [line for line in lines["requirements.txt"] if line.startswith("-")]
    assert options == {
        *("-c constraints.txt", "-r ../requirements.txt", "-r ../cli/requirements.txt"),
        *("-r ../cli/requirements-dev.txt", "-r ../spark/requirements.txt"),
    }
    assert not [line for found in lines.values() for line in found if "://" in line or "@" in line]

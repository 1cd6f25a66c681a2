"""What is deployed: the app whole, nothing else, once per region."""

import re
from fnmatch import fnmatch
from importlib.metadata import version

from tests.infra.parity import ROOT, deployment, section

SHIPPED_FILES = ["LICENSE", "function_app.py", "host.json", "requirements.txt"]
SHIPPED_FOLDERS = ["functions", "shared"]


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
        if path.suffix in (".py", ".typed")
    ]

    assert "shared/py.typed" in modules
    assert {path: ignored_by(path) for path in SHIPPED_FILES + modules if ignored_by(path)} == {}


def test_every_other_package_and_document_stays_at_home() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - set(SHIPPED_FOLDERS)
    others = packages | {
        "docs",
        "infra",
        "bench",
        "local.config.json",
        "requirements-dev.txt",
        ".venv",
    }

    assert {name for name in others if not ignored_by(name)} == set()


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


def test_azd_publishes_to_the_app_of_each_region() -> None:
    services = re.findall(
        r"^  (\w+):\n    project: \.$", (ROOT / "azure.yaml").read_text(), re.MULTILINE
    )
    tags = [section(deployment().module(name).resource("app"))["tags"] for name in ("east", "west")]

    assert services == ["east", "west"]
    assert [str(found) for found in tags] == [
        "<union({'azd-env-name': 'trial'}, {'azd-service-name': 'east'})>",
        "<union({'azd-env-name': 'trial'}, {'azd-service-name': 'west'})>",
    ]


def test_the_library_that_finds_the_functions_is_deployed_with_the_app() -> None:
    """Without it the worker uses a copy of its own, 1.1.0b1 in Core Tools 4.6.0, and finds nothing.

    That copy meets the retry policies with another protobuf than theirs and stops at `Fail to
    convert to Duration`; the app then starts with 0 functions, and no error but a line in the log.
    """
    requirements = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", requirements, re.MULTILINE))

    pinned = pins.get("azure-functions-runtime")

    assert pinned is not None
    assert tuple(map(int, pinned.split("."))) >= (1, 3, 0)
    assert pinned == version("azure-functions-runtime")

"""The documents say what the code does: settings, functions, routes, errors, links, decisions."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from functions.http.descriptions import describe_standstill
from functions.http.responses import REPORT_HELP, describe_problem, status_of
from functions.http.sagas import respond_refused
from shared.domain import errors, wire
from shared.domain.message import Message, Number
from shared.domain.standstill import Standstill, StandstillKind
from shared.engine.sagas.sagas import SagaResponse
from shared.settings import SERVICE_BUS_PREFIX, SETTINGS, Setting
from tests.docs.reference_page import anchors, rows

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
# The changelog also names what there is no longer.
DOCUMENTS = [page for page in PAGES if page.name != "CHANGELOG.md"]
README_LINES_MAX = 150


def default_of(setting: Setting) -> str:
    """How the reference shows a default."""
    if setting.default is None:
        return "required"
    return f"`{setting.default}`" if setting.default else "empty"


def test_every_setting_is_documented_with_its_default_and_meaning() -> None:
    expected = {setting.name: [default_of(setting), setting.meaning] for setting in SETTINGS}

    documented = rows("App settings")

    assert documented.pop(f"{SERVICE_BUS_PREFIX}<region>")
    assert documented == expected


def test_every_function_and_route_is_documented() -> None:
    program = (
        "import json, function_app as a\n"
        "bindings = {f.get_function_name(): f.get_trigger() for f in a.app.get_functions()}\n"
        "print(json.dumps({n: getattr(t, 'route', None) for n, t in bindings.items()}))"
    )
    environment = os.environ | {
        "LOCKSTEP_REGION": "east",
        "LOCKSTEP_REGIONS": "east",
        "ServiceBus_east": "Endpoint=sb://nowhere/",
        "Cosmos": "AccountEndpoint=http://nowhere/;AccountKey=bm90aGluZw==;",
    }
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, check=True
    )
    routes: dict[str, str | None] = json.loads(run.stdout)

    documented = rows("Functions")

    assert set(routes) == set(documented)
    for name, route in routes.items():
        assert route is None or f"/api/{route}" in documented[name][0]


RAISED = (errors.InvalidMessage, errors.Unavailable, errors.NotStorable)


def leaves(kind: type[errors.LockstepError]) -> set[type[errors.LockstepError]]:
    """The errors that are raised: the leaves of the tree, and some that have kinds of their own."""
    children = children_of(kind)
    below = {leaf for child in children for leaf in leaves(child)}
    is_raised = not children or kind in RAISED
    return below | ({kind} if is_raised else set())


def test_every_error_is_documented_with_its_status() -> None:
    expected = {kind.__name__: str(status_of(kind("x"))) for kind in leaves(errors.LockstepError)}

    assert {name: cells[0] for name, cells in rows("Errors").items()} == expected


def test_the_error_tree_is_drawn_as_it_is() -> None:
    drawing = (errors.__doc__ or "").split("\n\n", 1)[1]

    drawn = re.findall(r"^[\s|`-]*([A-Z]\w+)", drawing, re.MULTILINE)

    assert drawn == [kind.__name__ for kind in by_depth(errors.LockstepError)]


def by_depth(kind: type[errors.LockstepError]) -> list[type[errors.LockstepError]]:
    """A branch of the tree, in the order in which it is written."""
    return [kind, *(below for child in children_of(kind) for below in by_depth(child))]


def children_of(kind: type[errors.LockstepError]) -> list[type[errors.LockstepError]]:
    """Its subclasses in the tree's own file; others may refine them elsewhere."""
    return [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]


def helps() -> list[str]:
    """Where answers say that the documentation explains them."""
    raised = sorted(leaves(errors.LockstepError), key=lambda kind: kind.__name__)
    over = SagaResponse(is_accepted=False, reason="it is over")
    standing = [Standstill(kind, "s", 0.0, "because") for kind in StandstillKind]
    return [
        *(describe_problem(kind("x"))["help"] for kind in raised),
        *(describe_standstill(one)["help"] for one in standing),
        json.loads(respond_refused(over).get_body())["help"],
        REPORT_HELP,
    ]


@pytest.mark.parametrize("place", helps())
def test_help_leads_to_one_place_of_a_page(place: str) -> None:
    page, _, anchor = place.partition("#")

    assert anchors(ROOT / page).count(anchor) == 1


def test_every_attribute_on_the_wire_is_documented() -> None:
    whole = Message(
        "m", "s", "t", b"{}", Number("g", 0, 0), "2013-01-01", "answers", "s", "m-0", reminder="r"
    )

    names = {name.removeprefix(wire.PREFIX) for name in wire.to_properties(whole)}

    assert names == set(rows("A message on the wire"))


def test_the_readme_can_be_read_in_one_go() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES_MAX


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())

    missing = [
        target for target in targets if "://" not in target and not (page.parent / target).exists()
    ]

    assert missing == []


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_and_module_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    # Folders that begin with a dot are where runs leave what they made, if there was one.
    folders = "|".join(
        sorted(p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith("."))
    )
    paths = set(re.findall(rf"`((?:{folders})/[\w./-]+)`", text))
    modules = set(re.findall(rf"python -m ((?:{folders})(?:\.\w+)*)", text))

    # NAME stands for what the reader chooses.
    missing = {path for path in paths if "NAME" not in path and not (ROOT / path).exists()}
    missing |= {module for module in modules if not is_command(module)}

    assert missing == set()


def is_command(module: str) -> bool:
    """Whether `python -m` can run it."""
    path = ROOT / module.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__main__.py").exists()


def test_every_record_of_a_decision_is_in_the_index_once_with_its_title() -> None:
    index = (ROOT / "docs/adr/README.md").read_text()
    listed = re.findall(r"^\| \[(\d{4})\]\(([^)]+)\) \| (.+) \|$", index, re.MULTILINE)

    written = []
    for page in sorted((ROOT / "docs/adr").glob("0*.md")):
        number, title = re.findall(r"^# (\d{4})\. (.+)$", page.read_text(), re.MULTILINE)[0]
        written.append((number, page.name, title))

    assert sorted(listed) == written


def test_the_changelog_knows_the_version() -> None:
    version = re.findall(
        r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )[0]

    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()

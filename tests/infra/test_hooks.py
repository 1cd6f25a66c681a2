"""What azd runs around a deployment: as azure.yaml says it, with a stand-in for azd and Azure."""

import ast
import json
import os
import re
import runpy
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from werkzeug import Request, Response

from cli.folders import STABLE_BUNDLE
from local.testing.patience import run_patiently
from proof.testbed.serving import serving
from tests.infra.parity import KNOWN_ROLES, ROOT, grants, local_config
from tests.infra.snapshots import INFRA, app_settings, load, read_outputs, read_snapshot

BLOB_OWNER = str(runpy.run_path(str(INFRA / "hooks.py"))["BLOB_OWNER"])
AZURE_YAML = yaml.safe_load((ROOT / "azure.yaml").read_text(encoding="utf-8"))
REGIONS = local_config()["Hosts"]["Regions"]
SPARED = {
    "AZURE_ENV_NAME": "trial",
    "AZURE_RESOURCE_GROUP": "rg-trial",
    "LOCKSTEP_JOURNAL_GROUP": "rg-trial-journal",
    "LOCKSTEP_LOCK": "/lock",
}
APP = {
    "name": "east",
    "app": "func-east",
    "appId": "/app",
    "principalId": "p-east",
    "storageId": "/storage",
}
HEALTHY = {"missing": 0, "heardSecondsAgo": 0.0}


@dataclass
class Azure:
    """Azure Resource Manager and one app on a loopback port."""

    address: str = ""
    health: Callable[[], dict[str, Any] | int | None] = lambda: HEALTHY
    role_age: float | None = 3600.0
    bundles: Any = field(default_factory=lambda: ["4.37.1", "4.38.0", "4.45.0", "4.46.0"])
    asked: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)

    def answer(self, method: str, path: str) -> Any:
        """The body for a request, or its status; None: it is refused."""
        self.asked.append(f"{method} {path}")
        if path == "/east/api/health":
            return self.health()
        if path.startswith("/bundles/"):
            return self.bundles
        if path.startswith("/storage/providers/Microsoft.Authorization/roleAssignments?"):
            given = []
            if self.role_age is not None:
                at = datetime.now(UTC) - timedelta(seconds=self.role_age)
                given = [role_assignment("p-east", BLOB_OWNER, at.isoformat())]
            stranger = role_assignment("somebody", BLOB_OWNER, "2020-01-01T00:00:00Z")
            return {"value": [stranger, *given]}
        return {} if method in {"POST", "DELETE"} else None


def role_assignment(principal: str, role: str, at: str) -> dict[str, Any]:
    definition = f"/subscriptions/s/providers/Microsoft.Authorization/roleDefinitions/{role}"
    return {
        "properties": {"principalId": principal, "roleDefinitionId": definition, "createdOn": at}
    }


@pytest.fixture
def azure() -> Iterator[Azure]:
    azure = Azure()

    def respond(request: Request) -> Response:
        body = azure.answer(request.method, request.full_path.rstrip("?"))
        if not request.path.startswith("/bundles/"):
            azure.tokens.add(request.headers.get("Authorization", ""))
        if isinstance(body, int):
            return Response(status=body)
        return Response(json.dumps(body), 200 if body is not None else 503)

    with serving(respond) as azure.address:
        yield azure


def hook(event: str, region: str = "") -> str:
    """What azure.yaml runs at an event in sh, for a region or for all."""
    place = AZURE_YAML["services"][region] if region else AZURE_YAML
    return str(place["hooks"][event]["posix"]["run"])


def run(command: str, azure: Azure, tmp_path: Path, **settings: str) -> tuple[int, str]:
    """Run a hook as azd does: in sh, in the project's folder, with the environment's values."""
    azd = tmp_path / "azd"
    azd.write_text("""#!/bin/sh\necho '{"token": "t"}'\n""", encoding="utf-8")
    azd.chmod(0o755)
    app = {**APP, "url": f"{azure.address}/east"}
    environment = {
        "PATH": f"{tmp_path}:{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
        "LOCKSTEP_APPS": json.dumps([app]),
        "LOCKSTEP_RESOURCE_MANAGER": azure.address,
        "LOCKSTEP_BUNDLES": f"{azure.address}/bundles",
        "LOCKSTEP_CHECK_SECONDS": "0.6",
        "LOCKSTEP_ROLE_SECONDS": "0.6",
        "LOCKSTEP_ALERTED": "somebody@example.com",
        **settings,
    }
    done = run_patiently(["sh", "-c", command], seconds=60, cwd=ROOT, env=environment)
    return done.returncode, done.stdout + done.stderr


def in_both_shells(arguments: str) -> dict[str, dict[str, str]]:
    command = f"infra/hooks.py {arguments}"
    return {
        "posix": {"shell": "sh", "run": f"python3 {command}"},
        "windows": {"shell": "pwsh", "run": f"python {command}"},
    }


def test_each_region_has_its_hooks_and_the_one_that_does_the_work_comes_last() -> None:
    order = list(reversed(REGIONS))
    waited_for = [AZURE_YAML["services"][region].get("uses", []) for region in order]

    assert list(AZURE_YAML["services"]) == order
    names = app_settings(read_snapshot(), "west")["LOCKSTEP_REGIONS"].split(",")
    assert names[0] == order[-1]
    assert waited_for == [[], *([region] for region in order[:-1])]
    for region in REGIONS:
        assert AZURE_YAML["services"][region]["hooks"] == {
            "prepackage": in_both_shells(f"package {region}"),
            "predeploy": in_both_shells(f"roles {region}"),
            "postdeploy": in_both_shells(f"check {region}"),
        }
    assert AZURE_YAML["hooks"] == {"predown": in_both_shells("down")}


def test_provisioning_takes_one_region_after_the_other() -> None:
    """No snapshot says so."""
    source = (INFRA / "main.bicep").read_text(encoding="utf-8")

    assert "\n@batchSize(1)\nmodule region " in source


def test_the_lines_for_a_third_region_are_those_of_the_others() -> None:
    page = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"^( *north:\n[^`]+)", page, re.MULTILINE)
    last = str(AZURE_YAML["services"]["east"])

    assert str(yaml.safe_load(lines)["north"]) == last.replace("east", "north")


def test_the_hooks_run_with_every_python_from_3_9_on() -> None:
    """A stranger's machine has azd and some Python; what runs there imports no newer name."""
    tree = ast.parse((INFRA / "hooks.py").read_text(encoding="utf-8"), feature_version=(3, 9))
    imported = {
        f"{node.module}.{name.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }

    assert imported == {
        *("__future__.annotations", "collections.abc.Iterator", "datetime.datetime"),
        *("datetime.timedelta", "datetime.timezone", "pathlib.Path", "typing.Any"),
    }


@pytest.mark.parametrize(
    ("python", "status", "said"),
    [
        ('echo "$@"', 0, "-m cli package . --prebuilt --to dist/east\n"),
        ("exit 3", 1, "The package for east could not be made. Nothing was published.\n"),
        (None, 1, "prepare it with `make .venv/ready`.\n"),
    ],
)
def test_a_package_is_made_by_the_checkouts_python_and_without_one_nothing_is_published(
    azure: Azure, tmp_path: Path, python: str | None, status: int, said: str
) -> None:
    (tmp_path / "infra").mkdir()
    hooks = str(shutil.copy(INFRA / "hooks.py", tmp_path / "infra"))
    if python:
        stand_in = tmp_path / ".venv/bin/python"
        stand_in.parent.mkdir(parents=True)
        stand_in.write_text(f"#!/bin/sh\n{python}\n", encoding="utf-8")
        stand_in.chmod(0o755)

    ended, words = run(hook("prepackage", "east").replace("infra/hooks.py", hooks), azure, tmp_path)

    assert (ended, words[-len(said) :]) == (status, said)


def test_the_role_that_is_waited_for_is_the_one_that_is_given() -> None:
    given = {role for role, _ in grants(read_snapshot())["east"]}

    assert KNOWN_ROLES[BLOB_OWNER] == "Storage Blob Data Owner"
    assert KNOWN_ROLES[BLOB_OWNER] in given


def test_main_says_what_the_hooks_read() -> None:
    source = (INFRA / "hooks.py").read_text(encoding="utf-8")
    outputs = read_outputs()
    apps = str(outputs["LOCKSTEP_APPS"]).split("createObject(")[1:]
    read_of_an_app = set(re.findall(r"app\[['\"](\w+)['\"]\]", source))

    assert read_of_an_app
    assert len(apps) == len(REGIONS)
    for app, region in zip(apps, REGIONS, strict=True):
        assert {*re.findall(r"'(\w+)', ", app)} >= read_of_an_app
        assert app.startswith(f"'name', '{region}', 'app', 'func-lockstep-{region}-")
    assert outputs.keys() >= SPARED.keys() - {"AZURE_ENV_NAME"}
    assert outputs["AZURE_RESOURCE_GROUP"] == "rg-trial"
    (journal,) = (one for one in read_snapshot() if one["type"].endswith("/locks"))
    assert outputs["LOCKSTEP_LOCK"] == journal["id"]
    assert outputs["LOCKSTEP_JOURNAL_GROUP"] in journal["id"]


def compare(
    azure: Azure, tmp_path: Path, host: dict[str, Any], **provisioned: Any
) -> tuple[int, str]:
    """What the hook before a publishing says of a package with this host.json."""
    for name in ("infra", "dist/east"):
        (tmp_path / name).mkdir(parents=True)
    hooks = str(shutil.copy(INFRA / "hooks.py", tmp_path / "infra"))
    (tmp_path / "dist/east/host.json").write_text(json.dumps(host), encoding="utf-8")
    apps = [
        {**APP, "url": "http://nowhere", "durable": "storage", "instancesMax": 40, **provisioned}
    ]
    command = hook("predeploy", "east").replace("infra/hooks.py", hooks)
    return run(command, azure, tmp_path, LOCKSTEP_APPS=json.dumps(apps))


def without_sagas() -> dict[str, Any]:
    host = dict(load(ROOT / "host.json"))
    host["extensions"].pop("durableTask")
    return host | {"extensionBundle": STABLE_BUNDLE}


def at_once(sessions: int, calls: int) -> dict[str, Any]:
    host = dict(load(ROOT / "host.json"))
    host["extensions"]["serviceBus"] |= {
        "maxConcurrentSessions": sessions,
        "maxConcurrentCallsPerSession": calls,
    }
    return host


@pytest.mark.parametrize(
    ("host", "provisioned", "status", "said"),
    [
        (load(ROOT / "host.json"), {}, 0, ""),
        (load(ROOT / "host.json"), {"durable": "scheduler"}, 0, ""),
        (without_sagas(), {"durable": "none"}, 0, ""),
        (load(ROOT / "host.json"), {"durable": "none"}, 1, "nothing was provisioned to run them"),
        (without_sagas(), {}, 0, "azd env set LOCKSTEP_DURABLE none"),
        (at_once(25, 5), {}, 0, ""),
        (at_once(25, 5), {"instancesMax": 41}, 1, "41 instances with 25 sessions and 5 calls"),
    ],
    ids=["as shipped", "scheduler", "none", "cannot run", "need not run", "at the limit", "beyond"],
)
def test_a_package_that_contradicts_what_was_provisioned_is_not_published(
    azure: Azure, tmp_path: Path, host: Any, provisioned: Any, status: int, said: str
) -> None:
    ended, words = compare(azure, tmp_path, host, **provisioned)

    assert (ended, said in words, bool(words)) == (status, True, bool(said)), words


@pytest.mark.parametrize(
    ("served", "status", "said"),
    [
        (["4.44.0", "4.45.1"], 1, "Azure serves no Microsoft.Azure.Functions.ExtensionBundle.Prev"),
        (None, 0, "is not known"),
        (["4.45.0"], 0, ""),
    ],
)
def test_a_bundle_that_azure_does_not_serve_ends_the_deployment(
    azure: Azure, tmp_path: Path, served: Any, status: int, said: str
) -> None:
    azure.bundles = served

    ended, words = compare(azure, tmp_path, load(ROOT / "host.json"))

    assert (ended, said in words, bool(words)) == (status, True, bool(said)), words


@pytest.mark.parametrize(
    ("role_age", "status", "said"),
    [
        (3600.0, 0, ""),
        (0.0, 0, "The role of func-east on its storage account is new"),
        (None, 1, "func-east has no role on its storage account: run `azd provision`"),
    ],
)
def test_a_new_role_is_waited_for_and_without_one_the_deployment_ends(
    azure: Azure, tmp_path: Path, role_age: float | None, status: int, said: str
) -> None:
    azure.role_age = role_age

    ended, words = run(hook("predeploy", "east"), azure, tmp_path)

    assert ended == status
    assert said in words
    assert bool(said) == bool(words)
    assert azure.tokens == {"Bearer t"}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "printf '#!/bin/sh\\nexit 1' > $AZD; " + hook("predeploy", "east"),
            "run `azd auth login`",
        ),
        ("python3 infra/hooks.py check north", "Region north has not been provisioned"),
    ],
)
def test_without_a_token_or_a_region_the_deployment_ends(
    azure: Azure, tmp_path: Path, command: str, said: str
) -> None:
    status, words = run(command, azure, tmp_path, AZD=str(tmp_path / "azd"))

    assert status == 1
    assert said in words


@pytest.mark.parametrize("alerted", ["", "somebody@example.com"])
def test_whoever_deploys_without_an_address_is_told_loudly(
    azure: Azure, tmp_path: Path, alerted: str
) -> None:
    status, words = run(hook("postdeploy", "east"), azure, tmp_path, LOCKSTEP_ALERTED=alerted)

    assert status == 0
    assert ("!!! NOBODY IS TOLD OF ANYTHING" in words) == (not alerted)
    assert "LOCKSTEP_ALERTED" in read_outputs()


NEVER_HEARD = {"missing": 0, "heardSecondsAgo": None}
BEFORE = {"missing": 0, "heardSecondsAgo": 90.0}
ABSENT = {"missing": 2, "heardSecondsAgo": 0.0}
# What the version before this one answers, for as long as it still does.
OLD = {"missing": {}, "heartbeats": {"recover": {"secondsAgo": 0.0, "within": 60.0}}}


@pytest.mark.parametrize(
    ("health", "said"),
    [
        (None, "HTTP Error 503"),
        # Access restrictions, with Front Door.
        (403, "is the address of this machine among directCallers?"),
        (ABSENT, "cannot use 2 of the places that its settings name; `lockstep health` names it"),
        (NEVER_HEARD, "a feed or a timer was not heard since then"),
        (BEFORE, "a feed or a timer was not heard since then"),
        (OLD, "a feed or a timer was not heard since then"),
    ],
)
def test_when_an_app_is_not_in_order_it_is_restarted_once_and_the_deployment_ends(
    azure: Azure, tmp_path: Path, health: dict[str, Any] | int | None, said: str
) -> None:
    azure.health = lambda: health

    status, words = run(hook("postdeploy", "east"), azure, tmp_path)

    assert status == 1
    assert said in words
    assert "No further region is published to" in words
    assert azure.asked.count(RESTART) == 1


RESTART = "POST /app/restart?api-version=2024-04-01"


@pytest.mark.parametrize(
    ("health", "restarted"),
    [(HEALTHY, HEALTHY), (NEVER_HEARD, HEALTHY)],
    ids=["healthy", "a restart helps"],
)
def test_when_an_app_is_in_order_the_deployment_goes_on(
    azure: Azure, tmp_path: Path, health: dict[str, Any], restarted: dict[str, Any]
) -> None:
    azure.health = lambda: restarted if RESTART in azure.asked else health

    status, words = run(hook("postdeploy", "east"), azure, tmp_path)

    assert status == 0
    assert words.endswith("func-east works.\n")
    assert (RESTART in azure.asked) == (health != restarted)


def test_azd_down_spares_the_journal_unless_told(azure: Azure, tmp_path: Path) -> None:
    down = hook("predown")

    refused, said = run(down, azure, tmp_path, **SPARED, LOCKSTEP_DELETE_JOURNAL="other")
    assert refused == 1
    assert "az group delete --name rg-trial\n" in said
    assert azure.asked == []

    told, said = run(down, azure, tmp_path, **SPARED, LOCKSTEP_DELETE_JOURNAL="trial")
    assert told == 0
    assert azure.asked == ["DELETE /lock?api-version=2020-05-01"]
    assert "The journal in rg-trial-journal will be deleted." in said

"""What azd runs around a deployment: as azure.yaml says it, with a stand-in for azd and Azure."""

import json
import os
import re
import runpy
import shlex
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from local.testing.patience import run_patiently
from tests.infra.bicep import INFRA, Kind
from tests.infra.parity import ROOT, access_of, deployment, grants, local_config
from tests.infra.rules import KNOWN_ROLES

BLOB_OWNER = str(runpy.run_path(str(INFRA / "hooks.py"))["BLOB_OWNER"])
AZURE_YAML = (ROOT / "azure.yaml").read_text(encoding="utf-8")
REGIONS = local_config()["Hosts"]["Regions"]
HEALTHY = {"missing": {}, "heard": {"rescue": {"secondsAgo": 0.0, "within": 60.0}}}


@dataclass
class Azure:
    """Azure Resource Manager and one app on a loopback port."""

    address: str = ""
    health: Callable[[int], dict[str, Any] | None] = lambda _: HEALTHY
    role_age: float | None = 3600.0
    asked: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)

    def answer(self, method: str, path: str) -> dict[str, Any] | None:
        """The body for a request; None: it is refused."""
        times = self.asked.count(f"{method} {path}")
        self.asked.append(f"{method} {path}")
        if path == "/east/api/health":
            return self.health(times)
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

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = azure.answer(self.command, self.path)
            azure.tokens.add(self.headers.get("Authorization", ""))
            self.send_response(200 if body is not None else 503)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        do_POST = do_DELETE = do_GET  # noqa: N815 - the library's names

        def log_message(self, *_: object) -> None:
            """Keep the tests' output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    azure.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield azure
    server.shutdown()
    thread.join()
    server.server_close()


def commands(event: str) -> dict[str, str]:
    """What azure.yaml runs at an event in sh, by the service it stands in; "" for none."""
    found: dict[str, str] = {}
    service = ""
    for line, following in zip(AZURE_YAML.splitlines(), AZURE_YAML.splitlines()[3:], strict=False):
        service = named[1] if (named := re.match(r"^  (\w+):$", line)) else service
        if line.strip() == f"{event}:":
            inside = service if line.startswith("      ") else ""
            found[inside] = following.strip().removeprefix("run: ")
    return found


def run(command: str, azure: Azure, tmp_path: Path, **settings: str) -> tuple[int, str]:
    """Run a hook as azd does: in sh, in the project's folder, with the environment's values."""
    azd = tmp_path / "azd"
    azd.write_text("""#!/bin/sh\necho '{"token": "t"}'\n""", encoding="utf-8")
    azd.chmod(0o755)
    app = {
        "name": "east",
        "app": "func-east",
        "appId": "/app",
        "url": f"{azure.address}/east",
        "principalId": "p-east",
        "storageId": "/storage",
    }
    environment = {
        "PATH": f"{tmp_path}:{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
        "LOCKSTEP_APPS": json.dumps([app]),
        "LOCKSTEP_RESOURCE_MANAGER": azure.address,
        "LOCKSTEP_CHECK_SECONDS": "0.6",
        "LOCKSTEP_ROLE_SECONDS": "0.6",
        **settings,
    }
    done = run_patiently(["sh", "-c", command], seconds=60, cwd=ROOT, env=environment)
    return done.returncode, done.stdout + done.stderr


def test_each_region_has_its_hooks_and_waits_for_the_one_before() -> None:
    for event, command in (("predeploy", "roles"), ("postdeploy", "check")):
        assert commands(event) == {
            region: f"python3 infra/hooks.py {command} {region}" for region in REGIONS
        }
    assert commands("predown") == {"": "python3 infra/hooks.py down"}
    used = re.findall(r"^    uses:\n      - (\w+)$", AZURE_YAML, re.MULTILINE)
    assert used == REGIONS[:-1]


def service_of(region: str, text: str) -> str:
    """The lines of a region's service, without comments, and without an indentation of all."""
    (found,) = re.findall(rf"^( *)({region}:\n(?:\1 .*\n)+)", text, re.MULTILINE)
    indentation, lines = found
    return re.sub(r" *#.*\n", "", lines).replace(f"\n{indentation}", "\n")


def test_the_lines_for_a_third_region_are_those_of_the_second_moved_on() -> None:
    page = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    second = service_of("west", AZURE_YAML)

    assert "- east" in second
    assert service_of("north", page) == second.replace("west", "north").replace("east", "west")


def test_windows_is_given_the_same_commands() -> None:
    runs = [shlex.split(found) for found in re.findall(r"run: (.*)", AZURE_YAML)]

    assert runs
    assert [run[1:] for run in runs[::2]] == [run[1:] for run in runs[1::2]]
    assert {run[0] for run in runs[1::2]} == {"python"}


def test_the_role_that_is_waited_for_is_the_one_that_is_given() -> None:
    given = {role for _, role, _ in grants(access_of("east"))}

    assert KNOWN_ROLES[BLOB_OWNER] == "Storage Blob Data Owner"
    assert KNOWN_ROLES[BLOB_OWNER] in given


def test_the_outputs_are_what_the_hooks_read() -> None:
    source = (INFRA / "hooks.py").read_text(encoding="utf-8")
    apps = deployment().output("LOCKSTEP_APPS")

    assert isinstance(apps, list)
    for app in apps:
        assert isinstance(app, dict)
        assert set(re.findall(r"app\['(\w+)'\]|app\[\"(\w+)\"\]", source)) <= {
            pair for name in app for pair in ((name, ""), ("", name))
        }


def test_an_old_role_is_not_waited_for(azure: Azure, tmp_path: Path) -> None:
    status, said = run(commands("predeploy")["east"], azure, tmp_path)

    assert (status, said) == (0, "")
    assert azure.tokens == {"Bearer t"}


def test_when_the_role_is_seconds_old_the_deployment_waits(azure: Azure, tmp_path: Path) -> None:
    azure.role_age = 0.0

    status, said = run(commands("predeploy")["east"], azure, tmp_path)

    assert status == 0
    assert "The role of func-east on its storage account is new" in said


def test_when_there_is_no_role_the_deployment_ends(azure: Azure, tmp_path: Path) -> None:
    azure.role_age = None

    status, said = run(commands("predeploy")["east"], azure, tmp_path)

    assert status == 1
    assert "func-east has no role on its storage account: run `azd provision`" in said


def test_when_azd_gives_no_token_the_deployment_ends(azure: Azure, tmp_path: Path) -> None:
    refused = f"printf '#!/bin/sh\\nexit 1' > {tmp_path}/azd; {commands('predeploy')['east']}"

    status, said = run(refused, azure, tmp_path)

    assert status == 1
    assert "run `azd auth login`" in said


def test_a_region_that_was_not_provisioned_is_named(azure: Azure, tmp_path: Path) -> None:
    status, said = run("python3 infra/hooks.py check north", azure, tmp_path)

    assert status == 1
    assert "Region north has not been provisioned" in said


def test_a_healthy_app_is_not_restarted(azure: Azure, tmp_path: Path) -> None:
    status, said = run(commands("postdeploy")["east"], azure, tmp_path)

    assert (status, said) == (0, "func-east works.\n")
    assert azure.asked == ["GET /east/api/health"]


NEVER_HEARD = {"missing": {}, "heard": {"rescue": {"secondsAgo": None, "within": 0.5}}}
BEFORE = {"missing": {}, "heard": {"rescue": {"secondsAgo": 90.0, "within": 0.5}}}
ABSENT = {"missing": {"container 'leases'": "not found"}, "heard": {}}


@pytest.mark.parametrize(
    ("health", "said"),
    [
        (None, "HTTP Error 503"),
        (ABSENT, "container 'leases': not found"),
        (NEVER_HEARD, "nothing was heard of rescue"),
        (BEFORE, "nothing was heard of rescue"),
        ({"missing": {}, "heard": None}, "when feeds and timers were heard is not known"),
    ],
)
def test_when_an_app_is_not_in_order_it_is_restarted_once_and_the_deployment_ends(
    azure: Azure, tmp_path: Path, health: dict[str, Any] | None, said: str
) -> None:
    azure.health = lambda _: health

    status, words = run(commands("postdeploy")["east"], azure, tmp_path)

    assert status == 1
    assert said in words
    assert "No further region is published to" in words
    assert azure.asked.count("POST /app/restart?api-version=2024-04-01") == 1


def test_when_a_restart_helps_the_deployment_goes_on(azure: Azure, tmp_path: Path) -> None:
    restarted = "POST /app/restart?api-version=2024-04-01"
    azure.health = lambda _: HEALTHY if restarted in azure.asked else NEVER_HEARD

    status, words = run(commands("postdeploy")["east"], azure, tmp_path)

    assert status == 0
    assert words.endswith("func-east works.\n")


def test_what_comes_seldom_is_not_waited_for(azure: Azure, tmp_path: Path) -> None:
    azure.health = lambda _: {
        "missing": {},
        "heard": {"compact": {"secondsAgo": None, "within": 1500.0}},
    }

    assert run(commands("postdeploy")["east"], azure, tmp_path)[0] == 0


SPARED = {
    "AZURE_ENV_NAME": "trial",
    "AZURE_RESOURCE_GROUP": "rg-trial",
    "LOCKSTEP_JOURNAL_GROUP": "rg-trial-journal",
    "LOCKSTEP_LOCK": "/lock",
}


def test_azd_down_spares_the_journal_unless_told(azure: Azure, tmp_path: Path) -> None:
    down = commands("predown")[""]

    refused, said = run(down, azure, tmp_path, **SPARED, LOCKSTEP_DELETE_JOURNAL="other")
    assert refused == 1
    assert "az group delete --name rg-trial\n" in said
    assert azure.asked == []

    told, said = run(down, azure, tmp_path, **SPARED, LOCKSTEP_DELETE_JOURNAL="trial")
    assert told == 0
    assert azure.asked == ["DELETE /lock?api-version=2020-05-01"]
    assert "The journal in rg-trial-journal will be deleted." in said


def test_what_the_guard_reads_is_what_main_says() -> None:
    outputs = deployment().bicep.of(Kind.OUTPUT)

    assert {"AZURE_RESOURCE_GROUP", "LOCKSTEP_JOURNAL_GROUP", "LOCKSTEP_LOCK"} <= outputs.keys()

"""docs/local.md on the Functions host and Durable is what the code says, and vice versa."""

import json
import re
from typing import Any

from durabletask.internal import orchestrator_service_pb2

import local.functions_host.triggers.cosmos as cosmos_trigger
import local.functions_host.triggers.http as http_trigger
import local.functions_host.triggers.service_bus as service_bus_trigger
import local.functions_host.triggers.timer as timer_trigger
from local.durable.backend import COMPONENT, operation_of
from local.functions_host.admin import Admin
from local.functions_host.config import host_json, keys
from local.functions_host.config.functions import BESIDE_A_TRIGGER, RETRIED
from local.functions_host.config.keys import Keys
from local.functions_host.config.settings import DISABLED, EMULATOR_ADDRESSES, INVOCATION_COST
from local.functions_host.durable import extension, management
from local.functions_host.host import LISTENERS, NAME_KEYS, DurableListener
from local.functions_host.web import Route, WebHandler, WebServer
from tests.docs.local_page import (
    PAGE,
    ROOT,
    cells,
    coded,
    names,
    paragraph,
    quoted,
    rows,
    section,
)


def test_every_trigger_and_its_properties() -> None:
    durable = quoted(r"binding\.only(\(.*\))", DurableListener)
    durable |= {name for _, name in NAME_KEYS.values()}
    honoured = {
        "serviceBusTrigger": set(service_bus_trigger.HONOURED),
        "cosmosDBTrigger": set(cosmos_trigger.HONOURED),
        "httpTrigger": quoted(r"binding\.only(\(.*\))", http_trigger)
        | set(http_trigger.CONSTRAINTS),
        "timerTrigger": quoted(r"binding\.only(\(.*\))", timer_trigger),
        "manualTrigger": set(),
        **dict.fromkeys(("orchestrationTrigger", "activityTrigger", "entityTrigger"), durable),
    }
    documented = {
        name: set(coded(cell)) for name, cell in cells("Functions host", "trigger").items()
    }

    assert documented == honoured
    assert set(documented) == set(LISTENERS)
    beside = set(coded(paragraph("Functions host", "Beside a trigger")))
    assert beside == {kind for kind, _ in BESIDE_A_TRIGGER} | RETRIED


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    written = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))

    assert len(named) > 30
    assert {name for name in named if f"def {name}(" not in written} == set()


def test_every_key_of_host_json_with_its_default() -> None:
    documented: set[str] = set()
    for where, words in rows("Functions host", "host.json"):
        path = where.strip("`").split(".") if where else []
        documented |= {*path, *coded(re.sub(r" = `[^`]+`", "", words))}
        for key, default in re.findall(r"`(\w+)` = `([^`]+)`", words):
            document: Any = {key: json.loads(default)}
            for outer in reversed(path):
                document = {outer: document}
            assert host_json.parse(document) == host_json.parse({}), document

    assert documented == quoted(r"\.(?:take|section)\(\s*(\"\w+\")", host_json)


class Recorder(WebServer):
    """Notes routes instead of serving them."""

    def __init__(self) -> None:
        super().__init__(0)
        self.routes: set[str] = set()

    def add(self, route: Route, handler: WebHandler) -> None:
        """Note one."""
        self.routes |= {f"{method} {route.path}" for method in route.methods}


def test_every_admin_route_and_setting() -> None:
    server = Recorder()
    Admin("east", {}, Keys.read({})).add_routes(server)

    assert names("Functions host", "route") == server.routes
    settings = {timer_trigger.DATA_SETTING, extension.ADDRESS_SETTING, keys.MASTER}
    settings.add(INVOCATION_COST)
    settings |= {f"{keys.HOST_PREFIX}KEY", f"{keys.FUNCTION_PREFIX}FUNCTION.KEY"}
    settings |= {f"{keys.SYSTEM_PREFIX}{management.EXTENSION}", f"{host_json.PREFIX}PATH__KEY"}
    settings |= {name.replace("{function}", "FUNCTION") for name in DISABLED}
    assert names("Functions host", "setting") == settings | {
        f"NAME{end}" for end in EMULATOR_ADDRESSES
    }
    assert keys.DEVELOPMENT_KEY in coded(section("Functions host"))


def test_every_route_of_durable_instances() -> None:
    server = Recorder()
    management.InstanceManagement("127.0.0.1:1", Keys.read({})).add_routes(server)
    base, get, delete, post, *below = coded(paragraph("Durable Functions", "With the key"))

    documented = {f"{get} {base}", f"{delete} {base}", *(f"{post} {base}/{one}" for one in below)}
    assert documented == server.routes
    assert set(coded(paragraph("Durable Functions", "Query parameters"))) == management.HONOURED


def test_every_operation_on_durable_that_is_named_is_one() -> None:
    methods = orchestrator_service_pb2.DESCRIPTOR.services_by_name["TaskHubSidecarService"].methods
    named = coded(paragraph("Durable Functions", "Operations").split(")")[0])

    assert named[0] == f"{COMPONENT}.REGION"
    assert {*named[1:]} <= {operation_of(method.name) for method in methods}

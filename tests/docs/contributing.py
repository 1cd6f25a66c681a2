"""What is still missing for a new handler, destination, region or query function.

Each function returns a sentence for every part that is missing, which begins with the file to
change; no sentence means that nothing is missing. CONTRIBUTING.md gives the same files as steps.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from local.cosmos.sql.functions import FUNCTIONS
from tests.docs.local_page import ROOT
from tests.docs.local_page import names as names_on_local_page
from tests.infra.evaluation import Template
from tests.infra.parity import app_settings, deployment, grants, load

HANDLERS = ROOT / "functions/handlers"
QUERY_TESTS = [ROOT / f"tests/wire/test_cosmos_{name}.py" for name in ("query", "functions")]
ENTITY_TYPES = {"Microsoft.ServiceBus/namespaces/queues", "Microsoft.ServiceBus/namespaces/topics"}


def missing_for_handler(module: str, found: set[str], page: dict[str, set[str]]) -> list[str]:
    """What a module in functions/handlers lacks.

    `found` are the modules whose handlers the app has; `page` holds the modules in the table of
    CONTRIBUTING.md, each with its message types.
    """
    missing = []
    if not (HANDLERS / f"{module}.py").exists():
        missing.append(f"functions/handlers/{module}.py: there is no such module")
    if module not in found:
        missing.append(f"functions/handlers/{module}.py: the app finds no `handlers` in it")
    if not exercises(ROOT / f"tests/unit/functions/test_{module}.py", module):
        test = f"tests/unit/functions/test_{module}.py"
        missing.append(f"{test}: no test runs `exercise` on the handlers of {module}")
    if module not in page:
        missing.append(f"CONTRIBUTING.md: the table of handlers has no row for {module}")
    return missing


def exercises(test: Path, module: str) -> bool:
    """Whether a test file imports a module of handlers and calls `exercise`."""
    if not test.exists():
        return False
    nodes = list(ast.walk(ast.parse(test.read_text())))
    imported = {
        name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module
        for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
    }
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    called = {function.id for function in calls if isinstance(function, ast.Name)}
    return f"functions.handlers.{module}" in imported and "exercise" in called


def destinations_of(path: Path) -> set[str]:
    """The queues and topics that a module's outputs name; "" stands for the app's output queue.

    Raises ValueError for an output whose destination is neither text nor a constant of the module.
    """
    tree = ast.parse(path.read_text())
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return {destination_of(call, constants, path.name) for call in output_calls(tree)}


def output_calls(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("Output")) | ast.Call(func=ast.Attribute(attr="Output")):
                yield node


def destination_of(call: ast.Call, constants: dict[str, Any], file: str) -> str:
    given = [keyword.value for keyword in call.keywords if keyword.arg == "to"] + call.args[3:4]
    match given:
        case []:
            return ""
        case [ast.Constant(str(name))]:
            return name
        case [ast.Name(name)] if isinstance(constants.get(name), str):
            return str(constants[name])
    raise ValueError(f"{file}, line {call.lineno}: `to` is neither text nor a constant here")


def missing_for_destination(name: str, config: dict[str, Any]) -> list[str]:
    """What a queue or topic lacks, in each region."""
    missing = []
    deployed = {str(one.arguments["region"]): one for one in deployment().modules("region")}
    for namespace in config["UserConfig"]["Namespaces"]:
        region = namespace["Name"]
        entities = [*namespace.get("Queues", []), *namespace.get("Topics", [])]
        if name not in {entity["Name"] for entity in entities}:
            missing.append(f"local.config.json: namespace {region} has no queue or topic {name}")
        resources = deployed[region].resources() if region in deployed else []
        declared = {found.body["name"] for found in resources if found.type in ENTITY_TYPES}
        if name not in declared:
            missing.append(f"infra/region.bicep: region {region} gets no queue or topic {name}")
    return missing


def named_regions(config: dict[str, Any]) -> set[str]:
    """The regions that any part of a local configuration takes for one that processes."""
    values = config["Hosts"]["Values"]
    return {
        *(namespace["Name"] for namespace in config["UserConfig"]["Namespaces"]),
        *config["Hosts"]["Regions"],
        *values["LOCKSTEP_REGIONS"].split(","),
        *(name.removeprefix("ServiceBus_") for name in values if name.startswith("ServiceBus_")),
    }


def missing_for_region(region: str, config: dict[str, Any]) -> list[str]:
    """What a region lacks on one machine and in the templates."""
    hosts, values = config["Hosts"]["Regions"], config["Hosts"]["Values"]
    namespaces = {namespace["Name"] for namespace in config["UserConfig"]["Namespaces"]}
    on_one_machine = {
        "UserConfig.Namespaces has no namespace": region in namespaces,
        "Hosts.Regions gives no host and no task hub": region in hosts,
        "LOCKSTEP_REGIONS does not name": region in values["LOCKSTEP_REGIONS"].split(","),
        "no connection ServiceBus_ of": f"ServiceBus_{region}" in values,
        "Cosmos.Regions does not name": region in config["Cosmos"]["Regions"],
        "LOCKSTEP_COSMOS_LOCATIONS does not name": region
        in values["LOCKSTEP_COSMOS_LOCATIONS"].split(","),
    }
    main = deployment()
    deployed = {str(one.arguments["region"]): one for one in main.modules("region")}
    in_main = {
        "`regions` does not name": region in deployed,
        "not every app has the settings ServiceBus_ of": all(
            f"ServiceBus_{region}__fullyQualifiedNamespace" in app_settings(one)
            for one in deployed.values()
        ),
        "not every app may send to the namespace of": region in deployed
        and all(
            deployed[region].resource("namespace")["name"] in sends_to(one)
            for one in main.modules("access")
        ),
    }
    services = (ROOT / "azure.yaml").read_text().partition("\nservices:\n")[2].splitlines()
    in_azd = {
        "no service of the name": f"  {region}:" in services,
        "no hooks for": all(
            f"          run: python3 infra/hooks.py {command} {region}" in services
            for command in ("roles", "check")
        ),
    }
    return [
        f"{file}: {what} {region}"
        for file, parts in {
            "local.config.json": on_one_machine,
            "infra/main.bicep": in_main,
            "azure.yaml": in_azd,
        }.items()
        for what, is_there in parts.items()
        if not is_there
    ]


def sends_to(access: Template) -> set[str]:
    """The namespaces to which the app of an access module may send."""
    return {target for _, role, target in grants(access) if role == "Azure Service Bus Data Sender"}


def missing_for_query_function(name: str) -> list[str]:
    """What a function of the local Cosmos DB's queries lacks."""
    missing = []
    if name not in FUNCTIONS:
        missing.append(f"local/cosmos/sql/functions.py: FUNCTIONS has no {name}")
    if not any(f"{name}(" in query for query in names_on_local_page("Cosmos DB", "query", 1)):
        missing.append(f"docs/local.md: no query among the honoured ones shows {name}")
    if not any(f"{name}(" in tests.read_text() for tests in QUERY_TESTS):
        missing.append(f"tests/wire/test_cosmos_functions.py: no test calls {name}")
    return missing


def local_config() -> dict[str, Any]:
    return dict(load(ROOT / "local.config.json"))

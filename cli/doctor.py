"""`doctor`: what is wrong with settings, host.json, versions, apps, queues and roles.

It reads and changes nothing. Each finding names the next step.
"""

import ast
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.client import AppClient, AppRefused, NotReached
from cli.display import print_json, print_wrapped
from cli.failures import REFUSED, Misuse, NoAnswer
from cli.folders import REQUIREMENTS, require_app, show_path
from cli.look import AsJson, client_of
from cli.regions import CONFIG, find_config, read_config
from shared.settings import SETTINGS, InvalidSettings, Settings

PYTHON_LEAST = (3, 13)
HOST_SETTING = "AzureFunctionsJobHost__"
# Four runs of a handler and half a minute have to fit: docs/reference.md says so of the setting.
RUNS, REST_SECONDS = 4, 30.0
# Twice what host.json ships; docs/limits.md says what more would cost.
IN_FLIGHT_MAX = 128

# What the app says of a queue or container that it could not open, and what to do. The texts are
# those of the rules in shared/domain/failures.py; a test holds them together.
ADVICE = {
    "The queue is missing, or it is disabled.": (
        "create the queue in this region's namespace, or correct the setting that names it"
    ),
    "The key, the role or the connection string is wrong, or there is no such queue.": (
        "create the queue if there is none; otherwise give the app's identity the roles of"
        " infra/access.bicep on this namespace, or correct ServiceBus_<region>; then restart"
        " the app"
    ),
    "The queue is of another kind than the app needs.": (
        "create the queue anew with sessions, as infra/region.bicep declares it"
    ),
    "The container or the database is missing.": (
        "create it as infra/journal.bicep declares it, or correct LOCKSTEP_DATABASE,"
        " LOCKSTEP_JOURNAL or LOCKSTEP_LEASES"
    ),
    "The key or the token is wrong.": "correct the connection Cosmos of the app",
    "A key, a role, a firewall or a limit forbids it.": (
        "give the app's identity the role on the account that infra/access.bicep declares, and let"
        " the account's firewall take the app"
    ),
    "The key or the identity gives no token.": "set Cosmos__clientId to the app's identity",
    "The container has another partition key.": "create the container anew with the key /session",
    "The container lacks an index.": "deploy infra/ again: the journal's index has paths it lacks",
}
SAYS_NOTHING = (
    "look into the app's log; the app looks at queues and containers once, so restart it when the"
    " cause is gone, and run doctor again"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong: what was checked, what was found, and the next step."""

    check: str
    wrong: str
    next: str


def check_settings(values: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what an app with these settings would stop at, or read otherwise than was meant."""
    known = {one.name for one in SETTINGS}
    for name in sorted(values):
        if name.startswith("LOCKSTEP_") and name not in known | OWN_NAMES:
            near = get_close_matches(name, known, 1)
            meant = f"did you mean {near[0]}? " if near else ""
            yield Finding("settings", f"{name} is no setting", f"{meant}remove or rename it")
    try:
        Settings.read(values)
    except InvalidSettings as error:
        named = re.search(r"\b(LOCKSTEP_\w+|ServiceBus_\w+|Cosmos\w*)", str(error))
        name = named[1] if named else "it"
        step = f"correct {name}: docs/reference.md says what it takes; then run doctor again"
        yield Finding("settings", str(error), step)


def check_bindings(values: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what an app's trigger bindings would miss, which know no defaults."""
    unset = [
        one.name for one in SETTINGS if one.name.startswith("LOCKSTEP_") and one.name not in values
    ]
    if unset:
        text = f"{', '.join(unset)}: not set, and the trigger bindings know no defaults"
        yield Finding("settings", text, "set every LOCKSTEP_ name: infra/region.bicep has them all")


def check_host(document: Any, values: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what in a host.json takes away what order, quiet and liveness rest on."""
    bus = read_path(document, "extensions", "serviceBus") or {}
    values = {name.removeprefix(HOST_SETTING): text for name, text in values.items()}

    def of(name: str, default: Any) -> Any:
        return values.get(f"extensions__serviceBus__{name}", bus.get(name, default))

    if str(of("prefetchCount", 0)) != "0":
        text = "prefetchCount is not 0: messages wait in the host while their locks run out"
        yield Finding("host.json", text, "set extensions.serviceBus.prefetchCount to 0")
    if str(of("autoCompleteMessages", True)).lower() != "true":
        text = "autoCompleteMessages is off: no message is ever settled"
        yield Finding("host.json", text, "set extensions.serviceBus.autoCompleteMessages to true")
    if read_seconds(of("sessionIdleTimeout", "00:01:00")) > 5:
        text = "sessionIdleTimeout is over 5 s: a drained session keeps others from their turn"
        yield Finding(
            "host.json", text, 'set extensions.serviceBus.sessionIdleTimeout to "00:00:01"'
        )
    sessions, calls = of("maxConcurrentSessions", 8), of("maxConcurrentCallsPerSession", 1)
    if read_float(str(sessions), 0) * read_float(str(calls), 0) > IN_FLIGHT_MAX:
        text = f"{sessions} sessions with {calls} calls each are more than {IN_FLIGHT_MAX} messages"
        yield Finding(
            "host.json",
            f"{text}: when a worker dies, its host fails them one by one, for minutes",
            "lower maxConcurrentSessions or maxConcurrentCallsPerSession: docs/limits.md",
        )
    handler = read_float(values.get("LOCKSTEP_HANDLER_SECONDS"), 60.0)
    timeout = values.get("functionTimeout", read_path(document, "functionTimeout") or "00:30:00")
    if 0 < read_seconds(timeout) < RUNS * handler + REST_SECONDS:
        text = f"functionTimeout {timeout} is too short for LOCKSTEP_HANDLER_SECONDS {handler:g}"
        least = f"{RUNS * handler + REST_SECONDS:.0f} s"
        yield Finding(
            "host.json", text, f"raise functionTimeout to {least} or more, or lower the setting"
        )
    prefix = read_path(document, "extensions", "http", "routePrefix")
    if prefix not in (None, "api"):
        text = f"routePrefix is {prefix!r}: the links that the app gives begin with /api/"
        yield Finding("host.json", text, 'set extensions.http.routePrefix to "api"')


def check_versions(requirements: Path) -> Iterator[Finding]:
    """Yield whether this Python and its packages are those that were tested."""
    if sys.version_info[:2] < PYTHON_LEAST:
        wanted = ".".join(map(str, PYTHON_LEAST))
        found = ".".join(map(str, sys.version_info[:3]))
        yield Finding("versions", f"Python is {found}", f"install Python {wanted} or newer")
    for name, pinned in re.findall(
        r"^([\w.-]+)==(\S+)$", requirements.read_text("utf-8"), re.MULTILINE
    ):
        try:
            found = version(name)
        except PackageNotFoundError:
            found = "missing"
        if found != pinned:
            step = f"run: pip install -r {requirements}"
            yield Finding("versions", f"{name} is {found}, and {pinned} was tested", step)


def find_lost_destinations(app: Path) -> Iterator[Finding]:
    """Yield where an app's handlers name a queue or a topic by `to=` that is in no namespace.

    Only a text is seen, and a name that the module gives one. Raises CommandFailed as read_config.
    """
    config = find_config(app)
    # What HERE and OUTPUTS are: the app's own queues, whatever the settings call them.
    known = {"$here", ""} | {
        one["Name"]
        for namespace in read_config(config)["UserConfig"]["Namespaces"]
        for one in (*namespace.get("Queues", ()), *namespace.get("Topics", ()))
    }
    package = app / "functions/handlers"
    for path in sorted((package if package.is_dir() else app / "handlers").rglob("*.py")):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue  # whoever imports it says so
        texts = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("Output"):
                continue
            for to in (one.value for one in node.keywords if one.arg == "to"):
                named = texts.get(to.id) if isinstance(to, ast.Name) else to
                name = named.value if isinstance(named, ast.Constant) else None
                if isinstance(name, str) and name not in known:
                    text = f"{show_path(path)}:{to.lineno}: there is no queue or topic {name!r}"
                    own = show_path(app / CONFIG.name)
                    yield Finding(
                        "queues", text, f"correct it, or declare it in {own} and in Azure"
                    )


def check_folder(
    folder: Path, values: Mapping[str, str], checked: list[str], skipped: list[str]
) -> Iterator[Finding]:
    """Yield what is wrong in an app's folder, and add to the lists what was looked at."""
    try:
        app = require_app(folder)
        yield from find_lost_destinations(app)
        checked.append("queues that handlers name")
    except Misuse as error:
        app = folder
        skipped.append(f"queues that handlers name: {error}")
    host = app / "host.json"
    if folder == Path() and not host.exists():
        skipped.append("host.json: there is none here, and --app names no folder")
        return
    try:
        yield from check_host(json.loads(host.read_text(encoding="utf-8")), values)
        checked.append("host.json")
    except (OSError, ValueError) as error:
        yield Finding("host.json", f"{host}: {error}", "lockstep new app writes one")


def check_apps(client: AppClient) -> Iterator[Finding]:
    """Yield what the running apps say of themselves, each asked for its status by key."""
    regions: dict[str, str] = {}
    for url in client.urls:
        try:
            status = client.ask_region(url, "GET", "/api/status")
        except NotReached as error:
            step = "correct LOCKSTEP_URL, start the app, or let this machine through its firewall"
            yield Finding("apps", str(error), step)
            continue
        except (NoAnswer, AppRefused) as error:
            if isinstance(error, AppRefused) and error.kind == "KeyRefused":
                step = "take a function key from the app: az functionapp keys list"
                yield Finding("key", str(error), step)
            else:
                yield Finding("apps", str(error), advise(str(error)))
            continue
        if not isinstance(status, dict) or "missing" not in status:
            step = "correct LOCKSTEP_URL: docs/deploy.md says where the addresses are"
            yield Finding("apps", f"{url} is no Lockstep app, or an older one", step)
            continue
        region = status["region"]
        if region in regions:
            text = f"{url} and {regions[region]} both say that they are region {region}"
            yield Finding("apps", text, "set LOCKSTEP_REGION of one of them to its own region")
        regions[region] = url
        for place, reason in status["missing"].items():
            text = f"{url} cannot use {place}: {reason}"
            yield Finding("queues and roles", text, advise(reason))


def advise(reason: str) -> str:
    return next((step for text, step in ADVICE.items() if text in reason), SAYS_NOTHING)


def read_path(document: Any, *names: str) -> Any:
    for name in names:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def read_seconds(clock: Any) -> float:
    """The seconds of hh:mm:ss; -1 is no limit; 0 for what is neither."""
    parts = str(clock).split(":")
    if str(clock) == "-1" or len(parts) != 3:
        return 0.0
    hours, minutes, seconds = (read_float(part, 0.0) for part in parts)
    return hours * 3600 + minutes * 60 + seconds


def read_float(text: str | None, default: float) -> float:
    try:
        return float(text) if text else default
    except ValueError:
        return default


def read_values(file: Path) -> dict[str, str]:
    """App settings from local.settings.json, or as `az functionapp config appsettings list` prints.

    Raises Misuse for anything else.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Misuse(f"{file} holds no settings: {error}") from None
    if isinstance(found, list):
        found = {one.get("name"): one.get("value") for one in found if isinstance(one, dict)}
    elif isinstance(found, dict):
        found = found.get("Values", found)
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise Misuse(f"{file} holds no settings: names with texts were expected")
    return found


# Settings of the command line itself, which may stand in the same environment.
OWN_NAMES = {"LOCKSTEP_URL", "LOCKSTEP_KEY", "LOCKSTEP_TOKEN", "LOCKSTEP_WHO", "LOCKSTEP_TIMEOUT"}


def doctor(
    context: typer.Context,
    settings: Annotated[
        Path | None, typer.Option(help="settings of the app, as JSON (default: the environment)")
    ] = None,
    folder: Annotated[Path, typer.Option("--app", help="where host.json is")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Check settings, host.json, versions, and the apps of LOCKSTEP_URL with queues and roles."""
    values = read_values(settings) if settings else dict(os.environ)
    checked, skipped = ["versions"], []
    findings = list(check_versions(REQUIREMENTS))
    if settings or any(one.name in values for one in SETTINGS):
        checked.append("settings")
        findings += check_settings(values)
        if settings:
            findings += check_bindings(values)
        else:
            skipped.append("what an app's bindings need: a producer's environment may lack it")
    else:
        skipped.append("settings: there are none in the environment, and --settings names no file")
    findings += check_folder(folder, values, checked, skipped)
    try:
        findings += check_apps(client_of(context))
        checked.append("apps, key, queues and roles")
    except (Misuse, NoAnswer) as error:
        skipped.append(f"apps: {error}")
    if as_json:
        listed = [asdict(one) for one in findings]
        print_json({"findings": listed, "checked": checked, "skipped": skipped})
    else:
        for one in findings:
            print_wrapped(f"{one.check}: {one.wrong}")
            print_wrapped(f"  next: {one.next}")
        if not findings:
            print_wrapped("Nothing is wrong.")
        print_wrapped(f"checked: {', '.join(checked)}")
        for what in skipped:
            print_wrapped(f"not checked: {what}")
    if findings:
        raise typer.Exit(REFUSED)

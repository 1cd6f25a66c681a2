"""What azd runs around a deployment (azure.yaml): it needs azd and Python 3.9 or newer, no package.

    python infra/hooks.py package REGION  put the app and its packages into dist/REGION
    python infra/hooks.py roles REGION    look at that package, and wait until the app may read it
    python infra/hooks.py check REGION    wait until the app works, with one restart if need be
    python infra/hooks.py down            keep the journal, unless its deletion is asked for

The regions are those of the last `azd provision`, which azd gives to its hooks in LOCKSTEP_APPS.
Each command ends with status 1 and a sentence when it is in vain; azd then stops, so a region that
does not work is not followed by the next one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# Azure Resource Manager; another address in sovereign clouds.
MANAGER = "https://management.azure.com"
# Where the Functions host has its extensions from.
BUNDLES = "https://cdn.functions.azure.com/public/ExtensionBundles"
# "Service Bus quotas", in each tier: concurrent receive requests on a queue.
RECEIVES_MAX = 5000
# Storage Blob Data Owner: by this role the app reads its package.
BLOB_OWNER = "b7e6dc6d-f1e8-4753-8033-0f276bb0955b"
# A role is shown at once and honoured later. In reports of azure-dev #8026 a minute was enough;
# Azure promises no more than ten.
ROLE_SECONDS = 180.0
# How long the app has to work, before and again after a restart. A cold start takes a minute or so,
# and feeds start only when the sweep has given them something to see.
CHECK_SECONDS = 300.0
POLL_SECONDS = 5.0


class InVain(Exception):
    """What the command waited for did not come; the text says what."""


def main() -> int:
    parser = argparse.ArgumentParser(description="What azd runs around a deployment.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("package", "roles", "check"):
        commands.add_parser(name).add_argument("region", help="its name in azure.yaml")
    commands.add_parser("down")
    asked = parser.parse_args()
    try:
        if asked.command == "down":
            guard_journal()
        elif asked.command == "package":
            package(asked.region)
        elif asked.command == "roles":
            app = find_app(asked.region)
            compare(app)
            wait_for_role(app)
        else:
            check(find_app(asked.region))
    except InVain as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    return 0


def find_app(region: str) -> dict[str, Any]:
    """What the last provisioning said of a region; InVain if it said nothing."""
    for app in json.loads(os.environ.get("LOCKSTEP_APPS") or "[]"):
        if app["name"] == region:
            # An older release did not say the first two.
            return {"durable": "storage", "instancesMax": 40, **app}
    raise InVain(
        f"Region {region} has not been provisioned: add it to `regions` in infra/main.bicep and run"
        " `azd provision`."
    )


def package(region: str) -> None:
    """Put the app and its packages into a folder of the region's own, as `lockstep package` does.

    azd may package regions side by side, so they do not share a folder.
    """
    folder = ROOT / ".venv" / ("Scripts" if os.name == "nt" else "bin")
    python = next(folder.glob("python.exe" if os.name == "nt" else "python"), None)
    if python is None:
        raise InVain(f"There is no Python in {folder}: prepare it with `make .venv/ready`.")
    words = ["-m", "cli", "package", ".", "--prebuilt", "--to", f"dist/{region}"]
    if subprocess.run([str(python), *words], cwd=ROOT, check=False).returncode:
        raise InVain(f"The package for {region} could not be made. Nothing was published.")


def compare(app: dict[str, Any]) -> None:
    """Hold what is to be published against what was provisioned; InVain where they contradict."""
    package = ROOT / "dist" / app["name"]
    path = (package if package.exists() else ROOT) / "host.json"
    host = json.loads(path.read_text(encoding="utf-8"))
    has_sagas, can_run = "durableTask" in host["extensions"], app["durable"] != "none"
    if has_sagas and not can_run:
        raise InVain(
            "The app has sagas, and nothing was provisioned to run them: `azd env set"
            " LOCKSTEP_DURABLE storage`, then `azd provision`. Nothing was published."
        )
    if can_run and not has_sagas:
        say(
            "The app has no sagas. `azd env set LOCKSTEP_DURABLE none` and `azd provision` save"
            " what is kept ready for them."
        )
    # What the extension does where host.json does not say.
    limits = {"maxConcurrentSessions": 8, "maxConcurrentCallsPerSession": 1}
    limits.update(host["extensions"].get("serviceBus", {}))
    sessions, calls = limits["maxConcurrentSessions"], limits["maxConcurrentCallsPerSession"]
    if app["instancesMax"] * sessions * calls > RECEIVES_MAX:
        raise InVain(
            f"{app['instancesMax']} instances with {sessions} sessions and {calls} calls of each at"
            f" a time are more than the {RECEIVES_MAX:,} receives that a queue takes: lower"
            " `instancesMax` in infra/region.bicep, or the limits in the app's host.json."
            " Nothing was published."
        )
    require_bundle(host["extensionBundle"])


def require_bundle(bundle: dict[str, str]) -> None:
    """See that there is a bundle that host.json takes: without one the host does not start."""
    index = f"{os.environ.get('LOCKSTEP_BUNDLES') or BUNDLES}/{bundle['id']}/index.json"
    try:
        with urllib.request.urlopen(index, timeout=30) as answer:
            served = [parse_version(one) for one in json.load(answer)]
    except (OSError, ValueError) as error:
        say(
            f"{index} cannot be read ({error}): whether Azure has {bundle['version']} is not known."
        )
        return
    least, below = (parse_version(one) for one in bundle["version"].strip("[)").split(","))
    if not any(least <= one < below for one in served):
        raise InVain(
            f"Azure serves no {bundle['id']} of {bundle['version']}: docs/upgrade.md says how to"
            " choose one. Nothing was published."
        )


def parse_version(text: str) -> list[int]:
    """Return the numbers of a version; a star is the least."""
    return [int(part) if part.isdigit() else 0 for part in text.strip().split(".")]


def wait_for_role(app: dict[str, Any]) -> None:
    """Wait until the app's role on its storage account is old enough to be honoured."""
    seconds = limit("LOCKSTEP_ROLE_SECONDS", ROLE_SECONDS)
    for _ in tries(seconds):
        given = role_given_at(app)
        if given is None:
            say(f"The role of {app['app']} on its storage account is not there yet.")
            continue
        left = seconds - (datetime.now(timezone.utc) - given).total_seconds()
        if left > 0:
            say(f"The role of {app['app']} on its storage account is new: {left:.0f} s to wait.")
            time.sleep(left)
        return
    raise InVain(
        f"{app['app']} has no role on its storage account: run `azd provision`, and see that you"
        " may assign roles."
    )


def role_given_at(app: dict[str, Any]) -> datetime | None:
    """When the app's identity was given the role by which it reads its package."""
    path = f"{app['storageId']}/providers/Microsoft.Authorization/roleAssignments"
    for one in manage("GET", f"{path}?api-version=2022-04-01")["value"]:
        found = one["properties"]
        if (found["principalId"], found["roleDefinitionId"].rpartition("/")[2]) == (
            app["principalId"],
            BLOB_OWNER,
        ):
            # In UTC, with more digits of a second than Python reads before 3.11: the next second.
            second = datetime.fromisoformat(f"{found['createdOn'][:19]}+00:00")
            return second + timedelta(seconds=1)
    return None


def check(app: dict[str, Any]) -> None:
    """Wait until the app is in order; restart it once.

    A Cosmos DB trigger that could not start, because a role or a container came late, tries again
    for ever in vain: only a restart helps.
    """
    seconds = limit("LOCKSTEP_CHECK_SECONDS", CHECK_SECONDS)
    wrong = watch(app, seconds)
    if wrong:
        say(f"{app['app']}: {wrong}. It is restarted.")
        manage("POST", f"{app['appId']}/restart?api-version=2024-04-01")
        wrong = watch(app, seconds)
    if wrong:
        raise InVain(f"{app['app']} does not work: {wrong}. No further region is published to.")
    say(f"{app['app']} works.")
    warn_if_nobody_is_told()


def warn_if_nobody_is_told() -> None:
    """Say loudly that alerts go to nobody: without an address there are none."""
    if not os.environ.get("LOCKSTEP_ALERTED"):
        print(
            "\n!!! NOBODY IS TOLD OF ANYTHING: there are no alerts, nor any of a lost region."
            "\n!!! Run `azd env set LOCKSTEP_EMAILS <address>,<address>` and `azd provision`.\n",
            file=sys.stderr,
            flush=True,
        )


def watch(app: dict[str, Any], seconds: float) -> str:
    """Ask for the app's health until nothing is wrong; otherwise what was wrong last."""
    wrong, began = "", time.monotonic()
    for _ in tries(seconds):
        health = ask_health(app["url"])
        # What was heard before this began may be the version before this one.
        wrong = what_is_wrong(health, time.monotonic() - began)
        if not wrong:
            break
    return wrong


def ask_health(url: str) -> dict[str, Any]:
    """The app's health, or `{"error": ...}`."""
    try:
        with urllib.request.urlopen(f"{url}/api/health", timeout=10) as answer:
            return dict(json.load(answer))
    except (OSError, ValueError) as error:  # HTTP statuses of 400 and more are OSErrors, too
        is_kept_out = getattr(error, "code", None) == 403
        hint = ": is the address of this machine among directCallers?" if is_kept_out else ""
        return {"error": f"{error}{hint}"}


def what_is_wrong(health: dict[str, Any], age_max: float) -> str:
    """Why an app is not in order yet; empty when it is.

    Every feed and timer that comes often must have been heard within `age_max` seconds. Those of an
    app to which nobody sends are, too: each start gives the feeds something to see.
    """
    if "error" in health:
        return f"/api/health answers {health['error']}"
    reasons = []
    if health.get("missing"):
        reasons.append(f"it cannot use {health['missing']} of the places that its settings name")
    age = health.get("heardSecondsAgo")
    if age is None or age > age_max:
        reasons.append("a feed or a timer was not heard since then, or no saga ran")
    # Names are for those who have a key, which azd has not.
    named = "`lockstep health` names it, and docs/runbook.md what to look at"
    return "; ".join([*reasons, named]) if reasons else ""


def guard_journal() -> None:
    """Stop `azd down`, which would take the journal along, unless it was asked for by name."""
    environment = os.environ.get("AZURE_ENV_NAME", "")
    journal, lock = os.environ.get("LOCKSTEP_JOURNAL_GROUP"), os.environ.get("LOCKSTEP_LOCK")
    if not journal:
        return
    if os.environ.get("LOCKSTEP_DELETE_JOURNAL") != environment:
        raise InVain(
            f"`azd down` would delete the journal, too. To delete all but the journal, run\n"
            f"    az group delete --name {os.environ.get('AZURE_RESOURCE_GROUP')}\n"
            f"To delete the journal with all else, run `azd env set LOCKSTEP_DELETE_JOURNAL"
            f" {environment}`, and `azd down` again."
        )
    if lock:
        manage("DELETE", f"{lock}?api-version=2020-05-01")
    say(f"The journal in {journal} will be deleted.")


def manage(method: str, path: str) -> dict[str, Any]:
    """Ask Azure Resource Manager, as whoever is logged in to azd; InVain if it refuses."""
    manager = os.environ.get("LOCKSTEP_RESOURCE_MANAGER") or MANAGER
    said = subprocess.run(
        ["azd", "auth", "token", "--scope", f"{manager}/.default", "--output", "json"],
        stdout=subprocess.PIPE,
        check=False,
    )
    if said.returncode:
        raise InVain("azd gives no token: run `azd auth login`.")
    request = urllib.request.Request(
        manager + path,
        method=method,
        headers={"Authorization": f"Bearer {json.loads(said.stdout)['token']}"},
        data=b"" if method == "POST" else None,
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return dict(json.loads(answer.read() or b"{}"))
    except OSError as error:
        raise InVain(f"{method} {path.partition('?')[0]}: {error}") from error


def tries(seconds: float) -> Iterator[None]:
    """One go after the other, with pauses, until the time is up; at least one."""
    until = time.monotonic() + seconds
    yield
    while time.monotonic() < until:
        time.sleep(min(POLL_SECONDS, seconds / 10))
        yield


def limit(setting: str, default: float) -> float:
    return float(os.environ.get(setting) or default)


def say(words: str) -> None:
    print(words, flush=True)


if __name__ == "__main__":
    sys.exit(main())

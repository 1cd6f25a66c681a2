"""A local cloud that is left running for a person: how it is reached, and code that is reloaded."""

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cli.failures import CommandFailed
from cli.folders import show_path
from cli.running import UP_DIRECTORY
from local.testing.cloud import CloudProcess, running_cloud
from local.testing.control import ControlRefused

# The key of the local Functions host.
KEY = "lockstep-local"
# How long after the first region's copy of a message the others' become visible.
SECONDARY_DELAY_SECONDS = 5
SOONER = {"LOCKSTEP_SECONDARY_DELAY_SECONDS": str(SECONDARY_DELAY_SECONDS)}
NO_SETTINGS: Mapping[str, str] = {}
POLL_SECONDS = 0.5
# What a change of means new code, or new limits.
RELOADED = frozenset({".py", ".html", ".json"})


@dataclass(frozen=True, slots=True)
class SampleMessage:
    """A message that the app's handlers take, to be tried."""

    session: str
    type: str
    body: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> "SampleMessage":
        """Read the message in a file `{"session", "type", "body"}`; raises CommandFailed."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            return cls(str(document["session"]), str(document["type"]), dict(document["body"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CommandFailed(
                f"{path} holds no message with session, type and body: {error}"
            ) from None


FLIGHT = SampleMessage(
    "N14228",
    "flight.status",
    {
        "status": "departed",
        "flight": "UA1545",
        "origin": "EWR",
        "destination": "IAH",
        "at": "2013-01-01T05:17:00",
    },
)


def prepare_cloud(
    app: Path, config: Path, directory: Path, *more: str, settings: Mapping[str, str] = NO_SETTINGS
) -> AbstractContextManager[CloudProcess]:
    """Run a cloud for one `with` block, for a person to watch: what it keeps lies in the directory.

    `more` are words for the cloud. The other regions see copies sooner than by default. ChildFailed
    is raised in the block when the cloud does not become ready.
    """
    return running_cloud(
        *("--app", str(app), "--config", str(config), "--data", str(directory / "cloud"), *more),
        logs=directory / "logs",
        settings={**SOONER, **settings},
    )


def app_settings(served: CloudProcess) -> dict[str, str]:
    """Return the settings by which an app outside the hosts, such as a sender, reaches a cloud."""
    buses, containers = served.contract["servicebus"], served.contract["containers"]
    return {
        "LOCKSTEP_REGIONS": ",".join(buses),
        "LOCKSTEP_REGION": next(iter(buses)),
        "LOCKSTEP_QUEUE": served.queue,
        "LOCKSTEP_OUTPUT_QUEUE": "lockstep-out",
        "LOCKSTEP_DATABASE": served.contract["cosmos"]["database"],
        "LOCKSTEP_JOURNAL": containers["journal"],
        "LOCKSTEP_LEASES": containers["leases"],
        **SOONER,
        "Cosmos": served.cosmos_connection,
        **{f"ServiceBus_{region}": text for region, text in buses.items()},
    }


def write_environment(cloud: CloudProcess, directory: Path) -> dict[str, str]:
    """Write what reaches a cloud into the file `env` of the directory, for a shell; return it."""
    settings = app_settings(cloud) | {
        "LOCKSTEP_URL": ",".join(cloud.contract["hosts"].values()),
        "LOCKSTEP_KEY": KEY,
        "LOCAL_CONTROL": cloud.contract["control"],
    }
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in settings.items()]
    (directory / "env").write_text("".join(lines), encoding="utf-8")
    return settings


def tell_how_to_reach(
    cloud: CloudProcess, app: Path, directory: Path, sample: SampleMessage | None
) -> None:
    """Print addresses, and lines for a shell, each of which works in this folder as it is printed.

    What `write_environment` writes must be there.
    """
    sys.stdout.write("\n".join(describe_cloud(cloud, app, directory / "env", sample)) + "\n")
    sys.stdout.flush()


def describe_cloud(
    cloud: CloudProcess, app: Path, env: Path, sample: SampleMessage | None
) -> Iterator[str]:
    hosts: Mapping[str, str] = cloud.contract["hosts"]
    region = cloud.regions[0]
    control, api = cloud.contract["control"], f"{hosts[region]}/api"
    width = max(map(len, hosts))
    yield ""
    yield "The operations page, in each region:"
    yield from (f"  {name:{width}}  {url}/api/operate?code={KEY}" for name, url in hosts.items())
    yield ""
    yield "In another terminal:"
    here = Path.cwd()
    if env.parent != app / UP_DIRECTORY:
        yield f"  . {shlex.quote(show_path(env))}"
    elif not here.is_relative_to(app):
        yield f"  cd {shlex.quote(show_path(app))}"
    if sample:
        name, body = shlex.quote(sample.session), json.dumps(sample.body)
        yield f"  lockstep send {name} {shlex.quote(sample.type)} {shlex.quote(body)}"
        yield f"  lockstep show {name}"
    yield "  lockstep faults"
    yield "  lockstep new handler NAME"
    yield ""
    yield "For a producer, and for all that asks for LOCKSTEP_URL or LOCAL_CONTROL:"
    yield f"  . {shlex.quote(show_path(env))}"
    if sample:
        # Neither `/` nor what a shell would read: the body is quoted, the name is for the path.
        path = f"sessions/{quote(sample.session, safe='')}"
        accepts = f"{api}/{path}/messages?type={quote(sample.type, safe='')}&code={KEY}"
        yield ""
        yield "The same over HTTP:"
        yield f"  curl -sS -X POST '{accepts}' -H 'Idempotency-Key: first' -d {shlex.quote(body)}"
        yield f"  curl -sS '{api}/{path}?code={KEY}'"
        yield f"  curl -sS '{api}/faults?code={KEY}'"
    yield ""
    yield "Kill a region's host and its namespace, and bring them back:"
    down = shlex.quote(json.dumps({"component": f"servicebus.{region}", "action": "down"}))
    yield f"""  curl -sS -X POST {control}/hosts/{region} -d '{{"action": "kill"}}'"""
    yield f"  curl -sS -X POST {control}/faults -d {down}"
    yield f"  curl -sS -X DELETE {control}/faults"
    yield f"""  curl -sS -X POST {control}/hosts/{region} -d '{{"action": "start"}}'"""
    yield ""
    yield "What every component counted, and which hosts run with which logs:"
    yield f"  curl -sS {control}/counters"
    yield f"  curl -sS {control}/hosts"
    yield ""
    yield "Ctrl-C stops everything."


def keep_up(
    cloud: CloudProcess,
    watched: Sequence[Path] = (),
    require_code: Callable[[], object] = lambda: None,
) -> None:
    """Wait until the cloud ends by itself, which raises ChildFailed.

    When a file below the watched folders changes, the hosts are started again, one region after
    the other, unless `require_code` raises CommandFailed about the new code. The first that does
    not start is told of, and those after it go on with the code that they have, until the next
    change.
    """
    before = find_versions(watched)
    while cloud.child.is_running:
        time.sleep(POLL_SECONDS)
        now = find_versions(watched)
        if now != before:
            changed = sorted(path.name for path, _ in before.items() ^ now.items())
            sys.stdout.write(f"{', '.join(dict.fromkeys(changed))} changed\n")
            sys.stdout.flush()
            try:
                require_code()
            except CommandFailed as error:
                sys.stdout.write(f"{error}\nall regions go on with the code that they have\n")
                sys.stdout.flush()
            else:
                restart_hosts(cloud)
        before = now
    raise cloud.child.failure("the local cloud ended")


def find_versions(folders: Iterable[Path]) -> dict[Path, int]:
    """Return when each file that a host reads was changed last, without what tools keep there."""
    found = {}
    for folder in folders:
        for path in folder.rglob("*"):
            hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
            if path.suffix in RELOADED and not hidden:
                try:
                    found[path] = path.stat().st_mtime_ns
                except FileNotFoundError:
                    continue  # an editor has just replaced it
    return found


def restart_hosts(cloud: CloudProcess) -> None:
    """Start the hosts again, one after the other, until one does not start."""
    for place, region in enumerate(cloud.regions):
        try:
            cloud.control.act(region, "stop")
            cloud.control.act(region, "start")
        except ControlRefused as error:
            sys.stdout.write(f"{region} does not run: {error}\n")
            if others := ", ".join(cloud.regions[place + 1 :]):
                sys.stdout.write(f"the code that was before it goes on in {others}\n")
            return
        else:
            sys.stdout.write(f"{region} runs the new code\n")
        finally:
            sys.stdout.flush()

"""Azure on this machine with an app in both regions, until Ctrl-C."""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from cli.cloud import (
    FLIGHT,
    SOONER,
    SampleMessage,
    keep_up,
    prepare_cloud,
    tell_how_to_reach,
    write_environment,
)
from cli.display import tell
from cli.doctor import find_lost_destinations
from cli.failures import CommandFailed
from cli.folders import ROOT, require_app
from cli.regions import find_config, keep_config
from cli.running import UP_DIRECTORY, UP_MARKER, read_marker, run_directory
from cli.trial import try_app
from local.testing.cloud import reserve_ports
from local.testing.failures import CloudFailed


def keep_app_up(
    app: Path,
    data: Path | None,
    more_regions: Sequence[str],
    settings: Mapping[str, str],
    *,
    port_base: int | None,
    is_fresh: bool,
    reloads: bool,
) -> None:
    """Start everything, say how to reach it, and wait; raises CommandFailed."""
    folder = require_app(app)
    kept, sample = (data or folder / UP_DIRECTORY).resolve(), None
    if folder == ROOT:
        sample = FLIGHT
    elif (folder / "sample.json").exists():
        sample = SampleMessage.read(folder / "sample.json")
    # It returns by an exception only: Ctrl-C, or the end of the cloud.
    try:
        with run_directory(kept, UP_MARKER, maker="this command", is_fresh=is_fresh) as marker:
            config = keep_config(find_config(folder), more_regions, kept)

            def require_code() -> Mapping[str, Sequence[str]]:
                for lost in find_lost_destinations(folder):
                    tell(f"{lost.wrong}: {lost.next}")
                return try_app(folder, config, {**SOONER, **settings})

            found = require_code()
            sys.stdout.write(f"the app in {folder}\n")
            width = max(map(len, found), default=0)
            sys.stdout.writelines(
                f"  {place:{width}}  {', '.join(types)}\n" for place, types in found.items()
            )
            types = {name for names in found.values() for name in names}
            if sample and sample.type not in types:
                tell(f"sample.json: no handler takes {sample.type!r}")
                sample = None
            ports = choose_ports(marker, config, port_base)
            sys.stdout.write("starting Azure on this machine\n")
            sys.stdout.flush()
            running = prepare_cloud(
                folder, config, kept, "--port-base", str(ports), settings=settings
            )
            with running as cloud:
                reached = write_environment(cloud, kept)
                found_by = {"url": reached["LOCKSTEP_URL"], "key": reached["LOCKSTEP_KEY"]}
                # Whoever reads what is printed below may call a command at once.
                write_marker(marker, {"port_base": ports, **found_by})
                tell_how_to_reach(cloud, folder, kept, sample)
                watched = [folder, ROOT / "functions", ROOT / "shared"] if reloads else []
                keep_up(cloud, watched, require_code)
    except CloudFailed as error:
        raise CommandFailed(str(error)) from error


def choose_ports(marker: IO[str], config: Path, wanted: int | None) -> int:
    """The first of the ports that are listened on: those of the last time, unless others are asked.

    Where another program has taken one of them, others are chosen, and that is told; where they
    were asked for, CommandFailed is raised. What is chosen is in the marker from then on.
    """
    document = json.loads(config.read_text("utf-8"))
    regions, replicas = len(document["Hosts"]["Regions"]), len(document["Cosmos"]["Regions"])
    # Control and Cosmos DB; a namespace, a host and a task hub of each region; replicas.
    count = 2 + len(document["UserConfig"]["Namespaces"]) + 2 * regions + replicas
    base = wanted or read_marker(marker).get("port_base")
    with ExitStack() as held:
        try:
            base = held.enter_context(reserve_ports(count, base))
        except (OSError, OverflowError) as error:
            if wanted:
                last = wanted + count - 1
                raise CommandFailed(f"the ports {wanted} to {last}: {error}") from None
            tell("another program listens on a port of the last time: the addresses are others now")
            base = held.enter_context(reserve_ports(count))
    write_marker(marker, {"port_base": base})
    return base


def write_marker(marker: IO[str], document: Mapping[str, Any]) -> None:
    marker.truncate(0)
    json.dump(document, marker)
    marker.flush()

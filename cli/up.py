"""Azure on this machine with an app in both regions, until Ctrl-C."""

import sys
from collections.abc import Sequence
from pathlib import Path

from cli.cloud import FLIGHT, SampleMessage, keep_up, prepare_cloud, tell_how_to_reach
from cli.failures import CommandFailed
from cli.folders import ROOT, require_app
from cli.regions import CONFIG
from cli.running import run_directory
from local.testing.failures import CloudFailed


def keep_app_up(
    app: Path, data: Path, more_regions: Sequence[str], *, is_fresh: bool, reloads: bool
) -> None:
    """Start everything, say how to reach it, and wait; raises CommandFailed."""
    folder, kept = require_app(app), data.resolve()
    own = folder / CONFIG.name
    # It returns by an exception only: Ctrl-C, or the end of the cloud.
    try:
        sample = FLIGHT if folder == ROOT else SampleMessage.read(folder / "sample.json")
        with run_directory(kept, "lockstep-up.json", maker="this command", is_fresh=is_fresh):
            running = prepare_cloud(folder, own if own.exists() else CONFIG, more_regions, kept)
            sys.stdout.write("starting Azure on this machine\n")
            sys.stdout.flush()
            with running as cloud:
                tell_how_to_reach(cloud, sample)
                keep_up(cloud, [folder, ROOT / "functions", ROOT / "shared"] if reloads else [])
    except CloudFailed as error:
        raise CommandFailed(str(error)) from error

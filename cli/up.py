"""Azure on this machine with an app in both regions, until Ctrl-C."""

import sys
from collections.abc import Sequence
from pathlib import Path

from cli.failures import CommandFailed
from cli.folders import ROOT, require_app
from proof.testbed.command import FAILURES, run_directory
from proof.testbed.kept import FLIGHT, SampleMessage, keep_up, tell_how_to_reach
from proof.testbed.regions import prepare_cloud


def keep_app_up(
    app: Path, data: Path, more_regions: Sequence[str], *, is_fresh: bool, reloads: bool
) -> None:
    """Start everything, say how to reach it, and wait; raises CommandFailed."""
    folder, kept = require_app(app), data.resolve()
    config = next(
        path for path in (folder / "local.config.json", ROOT / "local.config.json") if path.exists()
    )
    # It returns by an exception only: Ctrl-C, or the end of the cloud.
    try:
        sample = FLIGHT if folder == ROOT else SampleMessage.read(folder / "sample.json")
        with run_directory(kept, "lockstep-up.json", maker="this command", is_fresh=is_fresh):
            running = prepare_cloud(folder, config, more_regions, kept)
            sys.stdout.write("starting Azure on this machine\n")
            sys.stdout.flush()
            with running as cloud:
                tell_how_to_reach(cloud, sample)
                watched = [folder, ROOT / "functions", ROOT / "shared"] if reloads else []
                keep_up(cloud, watched)
    except FAILURES as error:
        raise CommandFailed(str(error)) from error

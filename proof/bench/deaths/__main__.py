"""`python -m proof.bench.deaths`: what the death of a worker costs, by the limits of host.json.

A region, or both, have 100 sessions, whose handler calls the outside for 0.2 s. The worker is
killed twice: when 100 effects have happened, and when 100 more have happened after that, no sooner
than `--apart` seconds after the first kill. The host on this machine treats what was in flight as
the real one does (emulator/docs/functions-host.md).

`in flight` are the messages at work when the worker was killed, and then when it was killed again.
`goes on` is the time from a kill to the next effect, `all done` that from the first kill to the
last effect. `deliveries` is the most failed ones that were seen of one message. Exit status: 0 it
was measured; 2 it was not.
"""

import argparse
import json
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cli.running import run_program
from local.testing.cloud import CloudProcess
from local.testing.control import ControlRefused
from local.testing.patience import wait_until
from proof.bench.deaths.trace import TRACE_SETTING, EffectLine, SlowCall, read_lines
from proof.bench.load import send
from proof.testbed.apps import compose_app
from proof.testbed.cloud import ROOT, running_cloud
from proof.testbed.command import RunFailed, exit_status, parse_count, show_progress
from shared.domain.message import Message, Number, derive_id

APP = Path(__file__).parent / "app"
QUEUE = "lockstep"
SESSIONS = 100
EFFECTS_BETWEEN = 100
LOOK_SECONDS = 0.2
SECONDS_MAX = 300.0
LIMITS = "AzureFunctionsJobHost__extensions__serviceBus__"


@dataclass(frozen=True, slots=True)
class HostLimits:
    """The limits of what a host has in hand at once, and of how long it keeps an empty session."""

    sessions: int
    calls: int
    idle_seconds: float

    @classmethod
    def parse(cls, text: str) -> "HostLimits":
        """Read `16x4@0.1`; raises ArgumentTypeError."""
        found = re.fullmatch(r"(\d+)x(\d+)@(\d+(?:\.\d+)?)", text)
        if found is None:
            raise argparse.ArgumentTypeError("must be SESSIONSxCALLS@IDLE_SECONDS, as in 16x4@0.1")
        return cls(int(found[1]), int(found[2]), float(found[3]))

    def __str__(self) -> str:
        return f"{self.sessions}x{self.calls}@{self.idle_seconds:g}"

    @property
    def settings(self) -> dict[str, str]:
        return {
            f"{LIMITS}maxConcurrentSessions": str(self.sessions),
            f"{LIMITS}maxConcurrentCallsPerSession": str(self.calls),
            f"{LIMITS}sessionIdleTimeout": f"00:00:{self.idle_seconds:09.6f}",
        }


@dataclass(slots=True)
class DeathRun:
    """One run on its way: what was done, when workers were killed, and the worst delivery."""

    cloud: CloudProcess
    regions: Sequence[str]
    trace: Path
    kills: list[float] = field(default_factory=list)
    in_flight: list[int] = field(default_factory=list)
    deliveries: int = 0
    dead_letters: int = 0

    def look(self, is_over: Callable[[], bool], what: str) -> None:
        """Watch the queues until something is so; raises RunFailed when it takes too long."""

        def see() -> bool:
            looks = (self.cloud.control.read_queue(region, QUEUE) for region in self.regions)
            seen = [one for look in looks for one in look]
            dead = sum(one["state"] == "dead_lettered" for one in seen)
            self.deliveries = max([self.deliveries, *(one["deliveries"] for one in seen)])
            self.dead_letters = max(self.dead_letters, dead)
            return is_over()

        wait_until(see, seconds=SECONDS_MAX, what=what, error=RunFailed, poll_seconds=LOOK_SECONDS)

    def count_effects(self) -> int:
        return len({(line.session, line.number) for line in read_lines(self.trace)})

    def has_effects(self, wanted: int) -> bool:
        return self.count_effects() >= wanted

    def kill_workers(self) -> None:
        """Kill the worker of each region, one that begins as soon as it runs."""
        left = set(self.regions)
        depths = self.cloud.control.read_depths()
        self.in_flight.append(sum(depths[region][QUEUE]["locked"] for region in left))

        def kill() -> bool:
            for region in sorted(left):
                self.cloud.control.act(region, "kill-worker")
                left.remove(region)
            return True

        wait_until(
            kill,
            seconds=SECONDS_MAX,
            what="a region has no worker",
            error=RunFailed,
            not_yet=(ControlRefused,),
        )
        self.kills.append(time.time())


def measure(limits: HostLimits, each: int, *, both: bool, apart_seconds: float) -> str:
    """Run one load beside two deaths; return the line of the table."""
    show_progress(f"{limits}, {'both regions' if both else 'one region'}")
    with tempfile.TemporaryDirectory(prefix="deaths-") as name:
        directory = Path(name)
        app, trace = directory / "app", directory / "trace"
        compose_app(APP, app)
        settings = {TRACE_SETTING: str(trace), "PYTHONPATH": str(ROOT), **limits.settings}
        with running_cloud("--app", str(app), logs=directory / "logs", settings=settings) as cloud:
            run = DeathRun(cloud, cloud.regions if both else cloud.regions[:1], trace)
            for region in run.regions:
                connection = cloud.contract["servicebus"][region]
                send(connection, QUEUE, [make_calls(f"s{n}", each) for n in range(SESSIONS)])
            for _ in range(2):
                effects = run.count_effects() + EFFECTS_BETWEEN
                run.look(partial(run.has_effects, effects), f"fewer than {effects} effects")
                while run.kills and time.time() < run.kills[-1] + apart_seconds:
                    time.sleep(LOOK_SECONDS)
                if run.has_effects(SESSIONS * each):
                    raise RunFailed("all was done before the second death: give more messages")
                run.kill_workers()
            run.look(partial(run.has_effects, SESSIONS * each), "effects are missing")
            again = len(read_lines(trace)) - SESSIONS * each
            return format_row(limits, run, read_lines(trace), again)


def make_calls(session: str, each: int) -> list[Message]:
    return [
        Message(
            derive_id(session, str(n)),
            session,
            "slow",
            json.dumps(SlowCall(number=n).model_dump()).encode(),
            Number("deaths", 0, n),
        )
        for n in range(each)
    ]


def format_row(limits: HostLimits, run: DeathRun, lines: Sequence[EffectLine], again: int) -> str:
    on = [min(line.at for line in lines if line.at > kill) - kill for kill in run.kills]
    done = max(line.at for line in lines) - run.kills[0]
    return (
        f"{limits!s:14}{run.in_flight[0]:10}{on[0]:9.1f}{run.in_flight[1]:10}{on[1]:9.1f}"
        f"{run.kills[1] - run.kills[0]:9.1f}{done:10.1f}"
        f"{run.deliveries:12}{run.dead_letters:14}{again:12}"
    )


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m proof.bench.deaths",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    limits = "limits to measure, repeatable, as 16x4@0.1; without any those of host.json"
    parser.add_argument(
        "--limits", type=HostLimits.parse, action="append", metavar="LIMITS", help=limits
    )
    parser.add_argument("--each", type=parse_count, default=6, help="messages of a session (6)")
    parser.add_argument("--both", action="store_true", help="kill in both regions at once")
    parser.add_argument("--apart", type=float, default=0.0, help="seconds between the kills (0)")
    return parser.parse_args(words)


def shipped() -> HostLimits:
    options = json.loads((ROOT / "host.json").read_text())["extensions"]["serviceBus"]
    return HostLimits(
        options["maxConcurrentSessions"],
        options["maxConcurrentCallsPerSession"],
        float(options["sessionIdleTimeout"].rpartition(":")[2]),
    )


def run(options: argparse.Namespace) -> int:
    print(
        f"{'':14}{'in flight':>10}{'goes on':>9}{'again':>10}{'goes on':>9}{'apart':>9}"
        f"{'all done':>10}{'deliveries':>12}"
        f"{'dead letters':>14}{'runs again':>12}"
    )
    for limits in options.limits or [shipped()]:
        row = measure(limits, options.each, both=options.both, apart_seconds=options.apart)
        print(row, flush=True)
    return 0


def main(words: Sequence[str]) -> int:
    options = parse_arguments(words)
    return exit_status("python -m proof.bench.deaths", lambda: run(options))


if __name__ == "__main__":
    run_program(main)

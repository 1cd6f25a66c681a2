"""`python -m proof.bench.incident`: how many actions an operator needs to end an incident.

The same incident is played twice on the local cloud: it is ended by the operations page alone, as a
browser sends its forms, and by the command line alone. An action is a request that a person clicks,
or a command. At each step the lists of what needs attention are held against the journal, and in
the end the effects against what was sent. Exit status: 0 all holds, 1 something does not (it is
named), 2 the incident could not be played.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.cloud import KEY
from cli.regions import CONFIG
from cli.running import run_program
from local.testing.cloud import CloudProcess
from local.testing.control import flatten_counters, subtract_tallies
from local.testing.patience import wait_until
from proof.bench.incident.person import CommandUser, PageUser, Person
from proof.bench.incident.troubles import (
    NOWHERE,
    OUTPUT_QUEUE,
    SECONDS_MAX,
    Amounts,
    BrokenService,
    Truth,
    ask_app,
    find_hidden,
    find_wrong_effects,
    make_trouble,
    running_notice_service,
)
from proof.testbed.cloud import running_cloud
from proof.testbed.command import RunFailed, exit_status, make_parser, parse_count, show_progress
from proof.testbed.faults import components_down, hosts_killed

ACTIONS_MAX = 12
IMPOSSIBLE, REFUSED_NOTICE = "Field required", "the notice service answered"
WHO = "Ada"
# A part of why deliveries without a number and a time are rejected.
UNTOLD = "neither a number nor a time"
PAGE = "page"
WAYS = (PAGE, "commands")
APP = Path(__file__).parent / "app"


@dataclass
class Play:
    """One play of the incident, and what was found wrong in it."""

    cloud: CloudProcess
    amounts: Amounts
    service: BrokenService
    person: Person
    wrong: list[str] = field(default_factory=list)

    @contextmanager
    def trouble(self, name: str) -> Iterator[None]:
        """Print what ending a trouble took; what is hidden after it is wrong."""
        actions = self.person.actions
        before = flatten_counters(self.cloud.control.read_counters())
        yield
        rows = subtract_tallies(before, flatten_counters(self.cloud.control.read_counters()))
        taken = self.person.actions - actions
        units = sum(spent for (at, *_), (_, spent) in rows.items() if at == "cosmos.journal")
        print(f"  {name:44} {taken:3} actions {units:9.1f} request units", flush=True)
        if taken > ACTIONS_MAX:
            self.wrong.append(f"{name}: {taken} actions, at most {ACTIONS_MAX}")
        self.wrong += [f"after {name}: {one}" for one in find_hidden(self.cloud)]

    def read_status(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = ask_app(self.cloud, "GET", "status")
        return found

    def check_overview(self) -> None:
        """Wait for a look of a sweep that says what the journal does."""

        def is_so() -> bool:
            truth, overview = Truth.read(self.cloud), self.read_status()["overview"]
            attention = overview["attention"] if overview else ()
            counted = {one["kind"]: one["count"] for one in attention}
            counts = {"halt": len(truth.halted), "blocked": truth.blocked_entries}
            return all(counted.get(kind, 0) == count for kind, count in counts.items())

        what = "the overview says otherwise than the journal"
        wait_until(is_so, seconds=SECONDS_MAX, what=what, error=RunFailed)

    def await_silence(self, *, is_silent: bool) -> None:
        """Wait until the region that is left says that the other one is silent, or is not."""

        def is_seen() -> bool:
            return any(one["silent"] for one in self.read_status()["regions"].values()) is is_silent

        what = "the regions do not hear, or miss, each other"
        wait_until(is_seen, seconds=SECONDS_MAX, what=what, error=RunFailed)


def solve_on_the_page(play: Play, person: PageUser, start_region: Callable[[], None]) -> None:
    amounts = play.amounts
    with play.trouble("see that a region is lost"):
        play.await_silence(is_silent=True)
        person.open("")
        person.require("silent")

    def decide(heading: str, action: str, why: str, **filled: str) -> None:
        person.open("/faults")
        if not person.has_form(heading):
            # It has no place on the first page, which names every cause.
            person.follow(heading)
        person.submit(heading, f"Preview {action}", "all", who=WHO, why=why, **filled)
        person.submit("", "Carry out")
        wait_until(
            lambda: "running" not in person.look_again().partition("</h1>")[0],
            seconds=SECONDS_MAX,
            what=f"{action} does not end",
            error=RunFailed,
        )

    with play.trouble(f"{amounts.halted} halted by what cannot be read"):
        decide(IMPOSSIBLE, "skip", "its sender was wrong")
    play.service.is_repaired = True
    with play.trouble(f"{amounts.halted} halted by a service"):
        decide(REFUSED_NOTICE, "retry", "the service is repaired")
    with play.trouble(f"{amounts.blocked} blocked at a missing queue"):
        decide("blocked", "redirect", "it is this one", to=OUTPUT_QUEUE)
    with play.trouble(f"{amounts.reports} rejected deliveries"):
        person.open("/errors")
        person.submit("open reports", "Send all of them again", who=WHO, why="they are new")
    with play.trouble(f"{amounts.sagas} sagas that wait for a person"):
        person.open("/sagas", state="running")
        listed = person.page
        for number in range(amounts.sagas):
            person.page = listed
            person.follow(f"order-{number}")
            person.submit("Decide", "approval: approved", who=WHO, why="it is in order")
    start_region()
    with play.trouble("see that the region is back"):
        play.await_silence(is_silent=False)
        person.open("")


def solve_by_commands(play: Play, person: CommandUser, start_region: Callable[[], None]) -> None:
    amounts, decided = play.amounts, ("--who", WHO, "--yes")
    with play.trouble("see that a region is lost"):
        play.await_silence(is_silent=True)
        # One of the regions gave no answer.
        person.run("health", ends=(3,))
    with play.trouble(f"{amounts.halted} halted by what cannot be read"):
        person.run("faults")
        person.run("skip", "--cause", IMPOSSIBLE, "--why", "its sender was wrong", *decided)
    play.service.is_repaired = True
    with play.trouble(f"{amounts.halted} halted by a service"):
        person.run("faults")
        person.run("retry", "--cause", REFUSED_NOTICE, "--why", "it is repaired", *decided)
    with play.trouble(f"{amounts.blocked} blocked at a missing queue"):
        person.run("faults", "--kind", "blocked")
        instead = ("--to", OUTPUT_QUEUE, "--why", "it is this one")
        person.run("redirect", "--cause", NOWHERE, *instead, *decided)
    with play.trouble(f"{amounts.reports} rejected deliveries"):
        person.run("errors")
        person.run("send-again", "--reason", UNTOLD, "--why", "they are new", *decided)
    with play.trouble(f"{amounts.sagas} sagas that wait for a person"):
        for one in person.run("sagas", "--state", "running")["sagas"]:
            person.run("saga", "approve", one["key"], "--why", "it is in order", *decided)
    start_region()
    with play.trouble("see that the region is back"):
        play.await_silence(is_silent=False)
        person.run("health", ends=(0, 1))


def play_incident(amounts: Amounts, by: str) -> list[str]:
    """Play it once; what was found wrong."""
    with running_notice_service() as service:
        settings = {
            "LOCKSTEP_NOTICE_URL": service.url,
            "LOCKSTEP_SECONDARY_DELAY_SECONDS": "5",
        }
        app = ("--app", str(APP), "--config", str(CONFIG))
        with running_cloud(*app, settings=settings) as cloud:
            lost, left = cloud.regions[0], cloud.regions[-1]
            hosts = cloud.contract["hosts"]
            os.environ |= {"LOCKSTEP_URL": f"{hosts[left]},{hosts[lost]}", "LOCKSTEP_KEY": KEY}
            person = PageUser(host=hosts[left], key=KEY) if by == PAGE else CommandUser()
            play = Play(cloud, amounts, service, person)
            show_progress("making the troubles")
            make_trouble(cloud, amounts)
            play.wrong += [f"at first: {one}" for one in find_hidden(cloud)]
            play.check_overview()
            show_progress(f"{lost} is lost, and somebody is called")
            with ExitStack() as region:
                region.enter_context(hosts_killed(cloud.control, lost))
                beside = (f"servicebus.{lost}", f"durable.{lost}")
                region.enter_context(components_down(cloud.control, *beside))
                print(f"by the {by}:", flush=True)
                if isinstance(person, PageUser):
                    solve_on_the_page(play, person, region.close)
                else:
                    solve_by_commands(play, person, region.close)
            print(f"  {'together':44} {person.actions:3} actions", flush=True)
            # What is still missing then is named below.
            with suppress(RunFailed):
                wait_until(
                    lambda: not find_wrong_effects(cloud, amounts, service),
                    seconds=SECONDS_MAX,
                    what="effects are missing, or are others",
                    error=RunFailed,
                )
            play.wrong += find_wrong_effects(cloud, amounts, service)
            play.check_overview()
            return [f"by the {by}: {one}" for one in play.wrong + find_hidden(cloud)]


def play_all(amounts: Amounts, ways: Sequence[str]) -> int:
    wrong = [one for by in ways for one in play_incident(amounts, by)]
    for one in wrong:
        print(f"wrong: {one}")
    if not wrong:
        print("nothing was hidden, and everything was processed as it was sent")
    return 1 if wrong else 0


def main(words: Sequence[str]) -> int:
    parser = make_parser("proof.bench.incident", __doc__)
    parser.add_argument("--halted", type=parse_count, default=150, help="by each of two causes")
    parser.add_argument("--by", choices=WAYS, help="only so")
    given = parser.parse_args(words)
    amounts = Amounts(halted=given.halted)
    ways = (given.by,) if given.by else WAYS
    return exit_status("python -m proof.bench.incident", lambda: play_all(amounts, ways))


if __name__ == "__main__":
    run_program(main)

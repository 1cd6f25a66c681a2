"""Commands that decide about what needs attention: previewed, and then carried out.

About sessions that are named one after another; about causes, or everything, by bulk decisions of
the app, which go on whatever becomes of this command.
"""

import getpass
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.client import AppClient, AppRefused, AppUnavailable
from cli.display import open_progress, print_json, print_table, tell, tell_time
from cli.failures import REFUSED, Misuse, NoAnswer
from cli.look import (
    PAGE,
    AsJson,
    SessionName,
    choose_causes,
    client_of,
    find_causes,
    print_causes,
    read_session,
)
from shared.domain.json_text import keep_json, write_object

# Between two looks at a bulk decision that did not get further.
PAUSE_SECONDS = 2.0

Sessions = Annotated[
    list[str] | None, typer.Argument(metavar="[SESSION]...", help="the sessions it is about")
]
Why = Annotated[str, typer.Option("--why", help="the reason, which is recorded")]
Who = Annotated[
    str | None,
    typer.Option("--who", envvar="LOCKSTEP_WHO", help="who decides (default: your user name)"),
]
Every = Annotated[bool, typer.Option("--all", help="everything listed that this verb ends")]
Cause = Annotated[
    str | None, typer.Option("--cause", help="everything whose cause contains this text")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="only show what it is about")]
At = Annotated[int | None, typer.Option("--at", min=0, help="the position of the entry")]
Queue = Annotated[str | None, typer.Option("--queue", help="only outputs that are for this queue")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="carry it out without asking")]
Body = Annotated[
    str | None, typer.Option("--body", help="JSON; @FILE reads a file, - standard input")
]


@dataclass(frozen=True, slots=True)
class ChosenStandstill:
    """One standstill, and the body of the resolution that ends it."""

    session: str
    cause: str
    verb: Mapping[str, Any]


def find_targets(
    client: AppClient,
    action: str,
    sessions: Sequence[str],
    at: int | None = None,
    queue: str | None = None,
) -> list[ChosenStandstill]:
    """Return what this action ends in these sessions; raises Misuse for none."""
    targets = [
        ChosenStandstill(one["session"], one["cause"], verb)
        for name in dict.fromkeys(sessions)
        for one in read_session(client, name)["standstills"]
        for verb in one["verbs"]
        if verb["action"] == action
        and at in (None, verb.get("at"))
        and queue in (None, verb.get("queue"))
    ]
    if not targets and action == "drop" and queue is not None:
        # What is only pending is dropped where somebody names it, and by no list of standstills.
        verb = {"action": action, "queue": queue} | ({} if at is None else {"at": at})
        return [ChosenStandstill(name, "its outputs are pending", verb) for name in sessions]
    if not targets:
        raise Misuse(f"nothing that was chosen needs attention and is ended by {action}")
    return targets


def carry_out_decisions(
    client: AppClient,
    targets: Sequence[ChosenStandstill],
    *,
    why: str,
    who: str | None,
    yes: bool,
    as_json: bool,
    said: Mapping[str, Any] | None = None,
) -> None:
    """Preview, ask, and carry out one decision about each target, one after another.

    A refusal does not keep the others from being carried out. An app that does not answer does:
    what was not begun is named so.
    """
    named = {"who": who or getpass.getuser(), "why": why, **(said or {})}
    if not yes:
        print_targets(targets, named)
        require_yes(f"Carry out {len(targets)}?")
    outcomes: list[dict[str, Any]] = []
    lost: NoAnswer | None = None
    with open_progress() as progress:
        task = progress.add_task(str(targets[0].verb["action"]), total=len(targets))
        for target in targets:
            if lost is not None:
                outcomes.append({"session": target.session, "outcome": "not begun"})
                continue
            try:
                outcomes.append(carry_out_one(client, target, named))
            except NoAnswer as error:
                lost = error
                outcomes.append({"session": target.session, "outcome": f"unknown: {error}"})
            progress.advance(task)
    if as_json:
        print_json({"outcomes": outcomes})
    else:
        ends = [(one["session"], one["outcome"]) for one in outcomes]
        print_table(("session", "outcome"), ends, "")
    if lost is not None:
        raise NoAnswer("not all of it is known; lockstep faults says what still stands")
    if any(not one["done"] for one in outcomes):
        raise typer.Exit(REFUSED)


def print_targets(
    targets: Sequence[ChosenStandstill], named: Mapping[str, Any] | None = None
) -> None:
    rows = [
        (one.session, write_object({**one.verb, **(named or {})}), one.cause) for one in targets
    ]
    print_table(("session", "decision", "cause"), rows, "")


def require_yes(question: str) -> None:
    """Ask at the terminal; raises Misuse unless the answer is yes, and where nobody can answer."""
    if not sys.stdin.isatty():
        raise Misuse("nothing was decided: say --yes to carry this out without being asked")
    if not typer.confirm(question):
        raise Misuse("nothing was decided")


def carry_out_one(
    client: AppClient, target: ChosenStandstill, named: Mapping[str, Any]
) -> dict[str, Any]:
    """One decision and what came of it; raises NoAnswer."""
    asked = write_object({**target.verb, **named}).encode()
    row: dict[str, Any] = {"session": target.session, "done": False}
    try:
        # Sent twice it is carried out once: what it is about is named by position, number or queue.
        found = client.ask("POST", "sessions/-/resolution", {"session": target.session}, asked)
    except AppUnavailable:
        raise
    except AppRefused as error:
        return row | {"outcome": str(error)}
    if "entry" not in found:
        left = [*found.get("pending", ()), *found.get("blocked", ())]
        said = [f"still missing in {', '.join(left)}"] if left else []
        if recorded := found.get("recorded"):
            said.append(f"a sweep carries it out in {', '.join(recorded)} once that is possible")
        outcome = "; ".join(said) or "delivered"
        parts = [f"{one['sent']} of {one['of']}" for one in found.get("missing", ()) if "of" in one]
        outcome += f" (sent: {', '.join(parts)})" if parts else ""
        return row | {"done": not left, "outcome": outcome}
    entry = found["entry"]
    outcome = f"entry {entry['position']}, {entry['status']}"
    if entry["status"] == "faulted":
        return row | {"outcome": f"{outcome} again: {entry.get('reason')}", "entry": entry}
    return row | {"done": True, "outcome": outcome, "entry": entry}


def read_body_option(text: str | None) -> dict[str, Any]:
    """`{"body": ...}` as it was given in an option, a file or standard input; raises Misuse."""
    if text is None:
        return {}
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        return {"body": keep_json(text)}
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(f"the body cannot be read: {error}") from None
    except ValueError as error:
        raise Misuse(f"the body is not JSON: {error}") from None


def decide_about_causes(
    client: AppClient,
    said: Mapping[str, str],
    cause: str | None,
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Carry out a bulk decision for each kind of which something has the cause, or of which all is.

    Raises Misuse for none, and NoAnswer where nobody knows how far it has come.
    """
    counted = choose_causes(find_causes(client), cause)
    chosen = [one for one in counted["causes"] if said["action"] in one["actions"]]
    if not chosen:
        raise Misuse(f"nothing that was chosen needs attention and is ended by {said['action']}")
    if dry_run or not yes:
        print_causes({**counted, "causes": chosen})
    if dry_run:
        return
    total = sum(one["count"] for one in chosen)
    if not yes:
        require_yes(f"Carry out {said['action']} about {total}?")
    ended = []
    for kind in dict.fromkeys(one["kind"] for one in chosen):
        causes = [one["cause"] for one in chosen if one["kind"] == kind]
        wanted: dict[str, Any] = {**said, "kind": kind, "id": str(time.time_ns())}
        wanted |= {} if cause is None else {"causes": causes}
        ended.append(follow_decision(client, wanted))
    if as_json:
        print_json({"decisions": ended})
    else:
        print_decisions(ended)
        print_shown(ended)
    if any(one["state"] != "done" or has_failed(one) for one in ended):
        raise typer.Exit(REFUSED)


def follow_decision(client: AppClient, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Have a bulk decision carried out piece by piece, until it has ended; raises NoAnswer."""
    body, known = write_object(wanted).encode(), ""
    found: dict[str, Any] = {}
    with open_progress() as progress:
        task = progress.add_task(f"{wanted['action']} ({wanted['kind']})", total=None)
        try:
            while True:
                # The same again goes on with the same decision, whichever region takes it.
                found = client.ask("POST", "decisions", {}, body, is_repeatable=True)
                count = sum(found["outcomes"].values())
                progress.update(task, total=found["about"], completed=count)
                if found["state"] != "running":
                    return found
                if known == (known := write_object(found["outcomes"])):
                    # Somebody else carries it out, or it waits for what is not there.
                    time.sleep(PAUSE_SECONDS)
        except (NoAnswer, KeyboardInterrupt) as error:
            name = f" {found['id']}" if found else ""
            tell(f"what has begun goes on by itself: lockstep decisions{name} shows it")
            if found:
                tell(f"lockstep cancel{name} --why ... ends it")
            raise error


def has_failed(decision: Mapping[str, Any]) -> bool:
    return bool(decision["outcomes"]["failed"] or decision["outcomes"]["refused"])


def list_decisions(
    context: typer.Context,
    decision: Annotated[str | None, typer.Argument(help="the id of one")] = None,
    limit: Annotated[int, typer.Option(min=1, max=PAGE, help="so many at most")] = 20,
    as_json: AsJson = False,
) -> None:
    """List bulk decisions of the last month by their last change, or show what came of one."""
    asked = {"id": decision, "limit": str(limit)}
    found = client_of(context).get("decisions", **asked)["decisions"]
    if as_json:
        print_json({"decisions": found})
        return
    print_decisions(found)
    if decision is not None:
        print_shown(found)


def cancel_decision(
    context: typer.Context,
    decision: Annotated[str, typer.Argument(help="its id")],
    why: Why,
    who: Who = None,
    as_json: AsJson = False,
) -> None:
    """End a bulk decision before its end; what is done stays done."""
    body = write_object({"id": decision, "who": who or getpass.getuser(), "why": why}).encode()
    found = client_of(context).ask("POST", "decisions/cancellation", {}, body, is_repeatable=True)
    if as_json:
        print_json(found)
    else:
        print_decisions([found])


def print_decisions(decisions: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        (
            *(one["id"], tell_time(one["begun"]), one["action"], one["kind"], one["state"]),
            *(one["about"], *one["outcomes"].values()),
            f"{one['who']}: {one['why']}",
        )
        for one in decisions
    ]
    outcomes = ("done", "recorded", "failed", "over", "refused")
    columns = ("decision", "begun", "action", "kind", "state", "about", *outcomes, "who and why")
    print_table(columns, rows, "Nothing was decided in the last month.")


def print_shown(decisions: Sequence[Mapping[str, Any]]) -> None:
    """Print what is shown of single sessions, where something is."""
    shown = [
        (one["session"], one["outcome"], one["text"])
        for decision in decisions
        for one in decision["shown"]
    ]
    if shown:
        print_table(("session", "outcome", "why"), shown, "")


def build_verb(action: str) -> Callable[..., None]:
    """The command of an action on sessions by name, on everything, or on what has a cause."""
    is_redirect = action == "redirect"

    def verb(
        context: typer.Context,
        why: Why,
        to: Annotated[
            str, typer.Option(help="the queue to send them to instead", hidden=not is_redirect)
        ] = ... if is_redirect else "",  # type: ignore[assignment]
        sessions: Sessions = None,
        every: Every = False,
        cause: Cause = None,
        at: At = None,
        queue: Queue = None,
        who: Who = None,
        yes: Yes = False,
        dry_run: DryRun = False,
        as_json: AsJson = False,
    ) -> None:
        if sum((bool(sessions), every, cause is not None)) != 1:
            raise Misuse("say which: one or more sessions, or --cause TEXT, or --all")
        if at is not None and len(sessions or ()) != 1:
            raise Misuse("--at is the position of an entry: it goes with one session")
        client, said = client_of(context), {"to": to} if to else {}
        if not sessions:
            said |= {"action": action, "who": who or getpass.getuser(), "why": why}
            said |= {} if queue is None else {"queue": queue}
            decide_about_causes(client, said, cause, yes=yes, dry_run=dry_run, as_json=as_json)
            return
        targets = find_targets(client, action, sessions, at, queue)
        if dry_run:
            print_targets(targets)
            return
        carry_out_decisions(client, targets, why=why, who=who, yes=yes, as_json=as_json, said=said)

    return verb


def edit(
    context: typer.Context,
    session: SessionName,
    why: Why,
    body: Body = None,
    message_type: Annotated[str | None, typer.Option("--type", help="the corrected type")] = None,
    at: At = None,
    who: Who = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Run the message of a fault with another body, or as another type."""
    said = read_body_option(body) | ({"type": message_type} if message_type is not None else {})
    if not said:
        raise Misuse("an edit needs --body or --type")
    client = client_of(context)
    targets = find_targets(client, "edit", [session], at=at)
    carry_out_decisions(client, targets, why=why, who=who, yes=yes, as_json=as_json, said=said)


def say_happened(
    context: typer.Context,
    session: SessionName,
    why: Why,
    result: Annotated[
        str | None, typer.Option("--result", help="what it gave, as JSON; @FILE; -")
    ] = None,
    at: At = None,
    who: Who = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Say that a step of a handler happened, and what it gave: the handler goes on after it."""
    said, client = read_body_option(result), client_of(context)
    targets = find_targets(client, "happened", [session], at=at)
    carry_out_decisions(client, targets, why=why, who=who, yes=yes, as_json=as_json, said=said)


def erase_data(
    context: typer.Context,
    session: SessionName,
    why: Why,
    who: Who = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Erase what a session holds of a person: its state and all older entries, for ever."""
    targets = [ChosenStandstill(session, "a person's data is erased", {"action": "erase"})]
    carry_out_decisions(client_of(context), targets, why=why, who=who, yes=yes, as_json=as_json)


def end_session(
    context: typer.Context,
    session: SessionName,
    why: Why,
    who: Who = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """End a session: whatever new comes for it is refused by name, and nothing is left in time."""
    targets = [ChosenStandstill(session, "the session ends", {"action": "end"})]
    carry_out_decisions(client_of(context), targets, why=why, who=who, yes=yes, as_json=as_json)


def replace_state(
    context: typer.Context,
    session: SessionName,
    why: Why,
    body: Annotated[str, typer.Option("--body", help="the whole new state, as JSON; @FILE; -")],
    at: At = None,
    who: Who = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give a session a whole new state."""
    verb = {"action": "set-state"} | ({"at": at} if at is not None else {})
    targets = [ChosenStandstill(session, "a person sets the state", verb)]
    client = client_of(context)
    carry_out_decisions(
        client, targets, why=why, who=who, yes=yes, as_json=as_json, said=read_body_option(body)
    )


# What the actions do that can be about many.
VERBS = {
    "retry": "Run messages of faults again, and try again to send outputs that are blocked.",
    "skip": "Go on without messages of faults.",
    "not-happened": "Say that a step of a handler did not happen: it is done again.",
    "skip-number": "Go on without the numbers that parked messages wait for.",
    "drop": "Send tombstones in place of outputs that are blocked at a queue, or pending.",
    "redirect": "Send outputs that are blocked at a queue to another one.",
    "close": "Take note of alerts, and of outputs that no queue takes.",
    "deliver": "Try now to deliver what regions miss.",
}

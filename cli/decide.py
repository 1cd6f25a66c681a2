"""Commands that decide about what needs attention: previewed, then carried out one by one."""

import getpass
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.client import AppClient, AppRefused, AppUnavailable
from cli.display import open_progress, print_json, print_table
from cli.failures import REFUSED, Misuse, NoAnswer
from cli.look import AsJson, SessionName, client_of, find_standstills, read_session
from shared.domain.json_text import keep_json, write_object

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
    str | None, typer.Option("--cause", help="everything listed whose cause contains this text")
]
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
    every: bool = False,
    cause: str | None = None,
    at: int | None = None,
    queue: str | None = None,
) -> list[ChosenStandstill]:
    """Return the chosen standstills that this action ends; raises Misuse for none or no choice."""
    if sum((bool(sessions), every, cause is not None)) != 1:
        raise Misuse("say which: one or more sessions, or --cause TEXT, or --all")
    if at is not None and len(sessions) != 1:
        raise Misuse("--at is the position of an entry: it goes with one session")
    if sessions:
        names = dict.fromkeys(sessions)
        found = [one for name in names for one in read_session(client, name)["standstills"]]
    else:
        found = find_standstills(client)
    targets = [
        ChosenStandstill(one["session"], one["cause"], verb)
        for one in found
        for verb in one["verbs"]
        if verb["action"] == action
        and (cause is None or cause in one["cause"])
        and at in (None, verb.get("at"))
        and queue in (None, verb.get("queue"))
    ]
    if not targets and action == "drop" and sessions and queue is not None:
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
        rows = [(one.session, write_object({**one.verb, **named}), one.cause) for one in targets]
        print_table(("session", "decision", "cause"), rows, "")
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
        outcome = f"still missing in {', '.join(left)}" if left else "delivered"
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


def build_verb(action: str) -> Callable[..., None]:
    """The command of an action that says nothing more than what it is about."""

    def verb(
        context: typer.Context,
        why: Why,
        sessions: Sessions = None,
        every: Every = False,
        cause: Cause = None,
        at: At = None,
        queue: Queue = None,
        who: Who = None,
        yes: Yes = False,
        as_json: AsJson = False,
    ) -> None:
        client = client_of(context)
        targets = find_targets(client, action, sessions or (), every, cause, at, queue)
        carry_out_decisions(client, targets, why=why, who=who, yes=yes, as_json=as_json)

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


def redirect(
    context: typer.Context,
    why: Why,
    to: Annotated[str, typer.Option("--to", help="the queue to send them to instead")],
    sessions: Sessions = None,
    every: Every = False,
    cause: Cause = None,
    queue: Queue = None,
    who: Who = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Send outputs that are blocked at a queue to another one."""
    client = client_of(context)
    targets = find_targets(client, "redirect", sessions or (), every, cause, queue=queue)
    carry_out_decisions(
        client, targets, why=why, who=who, yes=yes, as_json=as_json, said={"to": to}
    )


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


# What the actions do that need nothing more to be said.
VERBS = {
    "retry": "Run messages of faults again, and try again to send outputs that are blocked.",
    "skip": "Go on without messages of faults.",
    "skip-number": "Go on without the numbers that parked messages wait for.",
    "drop": "Send tombstones in place of outputs that are blocked at a queue, or pending.",
    "close": "Take note of alerts, and of outputs that no queue takes.",
    "deliver": "Try now to deliver what regions miss.",
}

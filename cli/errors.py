"""Commands about the error queue: what it holds, and sending a rejected delivery again."""

import getpass
import json
from typing import Annotated, Any

import typer

from cli.client import AppClient
from cli.decide import Body, Who, Why, Yes, read_body_option, require_yes
from cli.display import print_json, print_table, tell
from cli.failures import Misuse
from cli.look import AsJson, SessionName, client_of

Limit = Annotated[int, typer.Option(min=1, max=100, help="so many reports at most")]
Report = Annotated[
    str | None, typer.Option("--report", help="which report, where the session has several")
]


def print_errors(
    context: typer.Context,
    session: Annotated[str | None, typer.Argument(help="all reports of one session")] = None,
    after: Annotated[int | None, typer.Option(min=0, help="go on behind this number")] = None,
    skip: Annotated[int | None, typer.Option(min=0, help="pass over so many sessions")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List what the error queue of the first region holds; nothing of it is taken."""
    asked = {"after": after, "skip": skip, "limit": limit}
    numbers = {name: str(value) for name, value in asked.items() if value is not None}
    found = client_of(context).get("errors", session=session, **numbers)
    if as_json:
        print_json(found)
        return
    rows = [
        (one["session"], one["sequence"], one["type"], describe_next(one), one.get("reason"))
        for one in found["errors"]
    ]
    columns = ("session", "number", "type", "what to do", "reason")
    print_table(columns, rows, f"The error queue of {found['region']} is empty.")
    for name, value in found["next"].items():
        if value is not None:
            tell(f"there may be more: --{name} {value}")
    tell(f"{found['request_units']:.1f} request units")


def describe_next(error: dict[str, Any]) -> str:
    """Return what can be done about a report."""
    if sent := error.get("sent_again"):
        return f"sent again by {sent['who']}" if sent["done"] else "send-again, to finish it"
    return "send-again" if error["repeatable"] else "decide about its session"


def repeat_delivery(
    context: typer.Context,
    session: SessionName,
    why: Why,
    report: Report = None,
    to: Annotated[str | None, typer.Option("--to", help="another session")] = None,
    message_type: Annotated[str | None, typer.Option("--type", help="another type")] = None,
    body: Body = None,
    who: Who = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Send a rejected delivery of the error queue again: once, whoever does it where."""
    client = client_of(context)
    chosen = choose_report(client, session, report)
    said = {
        "session": session,
        "report": chosen["report"],
        "sequence": chosen["sequence"],
        "who": who or getpass.getuser(),
        "why": why,
        **{name: value for name, value in (("to", to), ("type", message_type)) if value},
        **read_body_option(body),
    }
    if not yes:
        rows = [
            ("report", chosen["report"]),
            ("rejected because", chosen.get("reason")),
            ("body", json.dumps(said["body"]) if "body" in said else chosen.get("body")),
        ]
        print_table(("", ""), rows, "")
        require_yes("Send it again?")
    # Asked twice it is sent once: the report names it.
    sent = client.ask("POST", "errors/again", {}, json.dumps(said).encode())
    if as_json:
        print_json(sent)
        return
    tell(f"sent to session {sent['session']!r} as {sent['id']}")


def choose_report(client: AppClient, session: str, report: str | None) -> dict[str, Any]:
    """The report that is meant; raises Misuse for none, and for one of several."""
    listed = client.get("errors", session=session, limit="100")["errors"]
    found: list[dict[str, Any]] = [
        one for one in listed if one["repeatable"] and report in (None, one["report"])
    ]
    if not found:
        raise Misuse(f"nothing in the error queue of session {session!r} can be sent again")
    if len(found) > 1:
        raise Misuse(f"{len(found)} reports can be sent again: say which by --report")
    return found[0]

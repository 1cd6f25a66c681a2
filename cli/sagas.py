"""Commands about one saga: start it, send it an event, let it go on, cancel it."""

import getpass
from typing import Annotated, Any
from urllib.parse import quote

import typer

from cli.decide import Who, Why, Yes, read_body_option, require_yes
from cli.display import print_json, print_table
from cli.failures import Misuse
from cli.look import AsJson, client_of
from shared.domain.json_text import write_object

saga = typer.Typer(no_args_is_help=True, help="Start a saga, send it an event, or cancel it.")

SagaKey = Annotated[str, typer.Argument(metavar="KEY", help="the saga's key")]
Event = Annotated[str, typer.Argument(metavar="EVENT", help="what has happened")]


@saga.command("start")
def start_one(
    context: typer.Context,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="the kind of saga")],
    key: SagaKey,
    body: Annotated[
        str, typer.Argument(help="what starts it: JSON; @FILE reads a file, - standard input")
    ] = "{}",
    as_json: AsJson = False,
) -> None:
    """Start a saga. Started again with the same body it changes nothing."""
    text = read_body_option(body)["body"].encode()
    query = {"key": key, "type": kind}
    found = client_of(context).ask("POST", "sagas/-", query, text, is_repeatable=True)
    if as_json:
        print_json(found)
    else:
        print_table(("", ""), [("saga", found["key"]), ("state", found["state"])], "")


@saga.command("tell")
def tell_one(
    context: typer.Context,
    key: SagaKey,
    event: Event,
    why: Why,
    who: Who = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Send a saga an event that it may wait for, now or later."""
    change_saga(context, key, event, why, who, yes, as_json)


@saga.command("approve")
def approve_one(
    context: typer.Context,
    key: SagaKey,
    why: Why,
    who: Who = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Send a saga the event by which the first wait that is open goes on."""
    found = client_of(context).get("sagas/-", key=key)
    onward: list[str] = next(
        (wait["onward"] for wait in found["waits"] if not wait["decision"]), []
    )
    if len(onward) != 1:
        said = f"goes on with any of {', '.join(onward)}" if onward else "waits for nothing"
        raise Misuse(f"saga {key!r} {said}: lockstep saga tell names the event")
    change_saga(context, key, onward[0], why, who, yes, as_json)


@saga.command("cancel")
def cancel_one(
    context: typer.Context,
    key: SagaKey,
    why: Why,
    who: Who = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make a saga turn back, where it still can: what it has done is undone."""
    change_saga(context, key, None, why, who, yes, as_json)


def change_saga(
    context: typer.Context,
    key: str,
    event: str | None,
    why: str,
    who: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Preview, ask, and send an event, or cancel where there is none; twice is as once."""
    named: dict[str, Any] = {"who": who or getpass.getuser(), "why": why}
    change = f"event {event}" if event else "cancel"
    if not yes:
        print_table(("saga", "change", "by"), [(key, change, write_object(named))], "")
        require_yes("Carry it out?")
    route = f"sagas/-/events/{quote(event, safe='')}" if event else "sagas/-/cancel"
    body = write_object(named).encode()
    found = client_of(context).ask("POST", route, {"key": key}, body, is_repeatable=True)
    if as_json:
        print_json(found)
    else:
        print_table(("saga", "outcome"), [(key, f"{change}: taken")], "")

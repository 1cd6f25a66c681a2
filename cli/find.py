"""The command that finds what an id names, and follows a message over sessions."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cli.client import AppClient
from cli.display import escape_control, print_json, print_table, tell, tell_time
from cli.failures import CommandFailed
from cli.look import AsJson, client_of

# A row is as long as it is, and a tree of rows must be seen.
BRANCH = "   "
# What an app lets a search cost.
UNITS_MAX = 10_000


def find_by_id(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(metavar="ID", help="of a message; or how a session's or saga's name begins"),
    ],
    session: Annotated[str | None, typer.Option(help="only entries of this session")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="the way of the message over sessions")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=100, help="so many entries at most")] = 20,
    units: Annotated[int, typer.Option(min=1, max=UNITS_MAX, help="request units at most")] = 200,
    as_json: AsJson = False,
) -> None:
    """Find entries by the id of a message, and sessions and sagas whose names begin so.

    It costs about 12 request units for each physical partition of the journal, 3 in one session.
    """
    client, allowed = client_of(context), str(units)
    found = client.get("find", id=name, session=session, limit=str(limit), units=allowed)
    if follow:
        follow_message(client, name, found, allowed, as_json=as_json)
        return
    if as_json:
        print_json(found)
        return
    rows = [
        (
            *(one["session"], one["position"], one["status"], tell_time(one.get("time"))),
            *(one["region"], ", ".join(message["type"] for message in one["messages"])),
            *(", ".join(m["saga"] for m in one["messages"] if "saga" in m), one.get("reason")),
        )
        for one in found["entries"]
    ]
    columns = ("session", "at", "status", "written", "in", "type", "saga", "reason")
    print_table(columns, rows, f"No entry names a message {name!r}: {describe_absence(found)}.")
    for what in ("sessions", "sagas"):
        if found[what]:
            print_table((f"{what} that begin so",), [(one,) for one in found[what]], "")
    tell_limits(found)


def describe_absence(found: Mapping[str, Any]) -> str:
    """Say why there may be no entry of a message."""
    if "entries" in found["unknown"] or found["is_cut"]:
        return "the search did not come to its end"
    return "not processed yet, removed with time, or rejected (lockstep errors)"


def tell_limits(found: Mapping[str, Any]) -> None:
    """Say what is not told, and what the search has cost."""
    for what, reason in found["unknown"].items():
        tell(f"the {what} could not be asked: {reason}")
    for what in found["more"]:
        hint = "--limit, or name the session" if what == "entries" else f"lockstep {what}"
        tell(f"there are more {what}: {hint}")
    if found["is_cut"]:
        more = min(10 * found["units"], UNITS_MAX)
        tell(f"it stopped at {found['units']} request units: --units {more}, or name the session")
    tell(f"{found['request_units']:.1f} request units")


def follow_message(
    client: AppClient, name: str, found: Mapping[str, Any], units: str, *, as_json: bool
) -> None:
    """Print the way of the one message that was found; raises CommandFailed for none or several."""
    sessions = {one["session"] for one in found["entries"]}
    if not sessions:
        raise CommandFailed(f"no entry names a message {name!r}: {describe_absence(found)}")
    if len(sessions) > 1:
        known = ", ".join(sorted(sessions))
        raise CommandFailed(f"messages of several sessions have this id: say --session ({known})")
    # The one that was written last says what became of it, however it was parked before.
    start = found["entries"][0]
    place = {"session": start["session"], "position": str(start["position"])}
    way = client.get("follow", **place, units=units)
    if as_json:
        print_json(way)
        return
    for hop in way["hops"]:
        typer.echo(escape_control(write_hop(hop, (start["session"], start["position"]))))
    for one in way["left"]:
        tell(f"not told: {one}")
    tell(f"{found['request_units'] + way['request_units']:.1f} request units")


def write_hop(hop: Mapping[str, Any], start: tuple[str, int]) -> str:
    """Return a line of the tree: where a message went, and what became of it there."""
    output = hop.get("output", {})
    branch = BRANCH * (hop["depth"] - 1) + "`- " if hop["depth"] else ""
    sent = f"{output['type']} to " if "type" in output else ""
    at = f" position {hop['position']}" if "position" in hop else ""
    if "status" not in hop:
        said = output.get("said", "as above" if at else "not known")
        return f"{branch}{sent}{hop['session']}{at}: {said}"
    types = ", ".join(dict.fromkeys(one["type"] for one in hop["messages"]))
    facts = (
        *(hop["status"], "" if sent else types),
        *dict.fromkeys(f"saga {one['saga']}" for one in hop["messages"] if "saga" in one),
        *(f"trace {hop['trace']}" if "trace" in hop else "", hop.get("reason", "")),
        tell_time(hop.get("time")),
    )
    mark = "  <- this message" if (hop["session"], hop["position"]) == start else ""
    return f"{branch}{sent}{hop['session']}{at}: {', '.join(filter(None, facts))}{mark}"

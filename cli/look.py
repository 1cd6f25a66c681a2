"""Commands that only look: sessions, what needs attention, sagas, health."""

import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from cli.client import AppClient
from cli.display import open_progress, print_json, print_table, tell, tell_due, tell_time
from cli.failures import NO_ANSWER, REFUSED, NoAnswer

PAGE = 100
# So many are listed where nothing is said: each costs a look of its own.
SHOWN = 25
# What an app hears at least this often, in seconds, is told about when it is silent.
OFTEN_SECONDS = 240

AsJson = Annotated[bool, typer.Option("--json", help="print JSON, as the app answers it")]
SessionName = Annotated[str, typer.Argument(metavar="SESSION", help="the session's name")]
KindNames = Annotated[
    str | None,
    typer.Option("--kind", help="halt, gap, alert, blocked, refused, pending; comma separated"),
]
Limit = Annotated[int, typer.Option(min=1, help="so many at most")]


def client_of(context: typer.Context) -> AppClient:
    client: AppClient = context.obj()
    return client


def find_pages(
    client: AppClient, what: str, route: str, limit: int, after: str | None, **asked: str | None
) -> Iterator[dict[str, Any]]:
    """Yield the pages of a list, until they have so many or there is no more."""
    left = limit
    with open_progress() as progress:
        task = progress.add_task(what)
        while True:
            page = client.get(route, **asked, limit=str(min(PAGE, left)), after=after)
            yield page
            left -= len(page[what])
            progress.advance(task, len(page[what]))
            after = page["after"]
            if after is None or left <= 0:
                return


def read_pages(
    client: AppClient, what: str, limit: int, after: str | None, asked: Mapping[str, str | None]
) -> dict[str, Any]:
    """Return the rows of a list's pages as one page, with the request units of all of them."""
    pages = list(find_pages(client, what, what, limit, after, **asked))
    units = sum(page["request_units"] for page in pages)
    rows = [one for page in pages for one in page[what]]
    return {what: rows, "after": pages[-1]["after"], "request_units": round(units, 2)}


def tell_rest(page: Mapping[str, Any]) -> None:
    """Say how a list goes on, if it does, and what it has cost."""
    if page["after"] is not None:
        tell(f"there are more: --after {shlex.quote(page['after'])}")
    tell(f"{page['request_units']:.1f} request units")


def find_causes(client: AppClient, kind: str | None = None) -> dict[str, Any]:
    """Return what needs attention by cause, the most urgent first, and whether that is all."""
    found: dict[str, Any] = client.get("causes", kind=kind)
    return found


def read_session(client: AppClient, session: str) -> dict[str, Any]:
    # `-` and a parameter: not every name can stand in a path.
    found: dict[str, Any] = client.get("sessions/-", session=session)
    return found


def print_sessions(
    context: typer.Context,
    prefix: Annotated[str, typer.Argument(help="only names that begin with this")] = "",
    after: Annotated[str | None, typer.Option(help="go on behind this place")] = None,
    limit: Annotated[int, typer.Option(min=1, help="so many sessions at most")] = SHOWN,
    changed: Annotated[bool, typer.Option("--changed", help="those that changed last")] = False,
    state: Annotated[
        str | None, typer.Option(help="those that are halted, working or parked")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List sessions by name or last change, with what the newest entry of each says."""
    asked = {"prefix": prefix or None, "state": state, "order": "changed" if changed else None}
    found = read_pages(client_of(context), "sessions", limit, after, asked)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            *(row["session"], row.get("position"), tell_time(row.get("time"))),
            *(row.get("status"), row.get("region")),
            "ended"
            if row.get("ended")
            else (f"halted by {row['halted_by']}" if "halted_by" in row else None),
            ", ".join(f"{count} of {group}" for group, count in row.get("parked", {}).items()),
        )
        for row in found["sessions"]
    ]
    columns = (
        *("session", "newest entry", "last change", "status", "written in"),
        *("needs attention", "parked"),
    )
    print_table(columns, rows, "There is no such session.")
    tell_rest(found)


def print_session(context: typer.Context, session: SessionName, as_json: AsJson = False) -> None:
    """Show a session: its newest entry, its state, and what needs attention about it."""
    found = read_session(client_of(context), session)
    if as_json:
        print_json(found)
        return
    head = found["head"] or {}
    facts = [("session", session), ("state", json.dumps(found["state"]))]
    if head:
        owner = head["owner"]
        facts += [
            ("newest entry", f"{head['position']}, {head['status']}"),
            ("written", tell_time(head.get("time"))),
            ("written by", f"{owner['instance']} in {owner['region']}"),
            ("messages", ", ".join(f"{one['type']} {one['id']}" for one in head["messages"])),
        ]
    if found["fault"]:
        facts += [("fault", found["fault"].get("reason"))]
        facts += [("failed", tell_time(found["fault"].get("time")))]
        facts += [("raised at", line) for line in found["fault"].get("raised_at", ())]
        steps = found["fault"].get("steps", ())
        facts += [("step", f"{one['name']}, {one['status']}, key {one['key']}") for one in steps]
        facts += [("its message", found["fault"].get("message", {}).get("body"))]
    print_table(("", ""), facts, "")
    print_standstills(found["standstills"])


def list_faults(
    context: typer.Context,
    kind: KindNames = None,
    cause: Annotated[
        str | None, typer.Option("--cause", help="only causes that contain this text")
    ] = None,
    limit: Limit = SHOWN,
    as_json: AsJson = False,
) -> None:
    """Count what needs attention by cause, and list it with the verbs that end it.

    What stops a session comes first, and of a cause what is newest.
    """
    client = client_of(context)
    counted = choose_causes(find_causes(client, kind), cause)
    found: list[dict[str, Any]] = []
    is_more: bool = counted["more"]
    asked = [{"kind": one["kind"], "cause": one["cause"]} for one in counted["causes"]]
    if cause is None:
        asked = [{"kind": name} for name in dict.fromkeys(one["kind"] for one in asked)]
    for one in asked:
        if len(found) >= limit:
            is_more = True
            break
        pages = [*find_pages(client, "standstills", "faults", limit - len(found), None, **one)]
        found += [row for page in pages for row in page["standstills"]]
        is_more |= pages[-1]["after"] is not None
    if as_json:
        print_json(counted | {"standstills": found, "more": is_more})
        return
    if len(counted["causes"]) > 1 or is_more:
        print_causes(counted)
    print_standstills(found)
    if is_more:
        tell(f"there are more: {len(found)} are shown; say a higher --limit")


def choose_causes(counted: Mapping[str, Any], text: str | None) -> dict[str, Any]:
    """Return those causes that contain a text, as they are or without what differs."""
    chosen = [
        one
        for one in counted["causes"]
        if text is None or text in one["cause"] or text in one["example"]
    ]
    return {**counted, "causes": chosen}


def print_causes(counted: Mapping[str, Any]) -> None:
    rows = [
        (
            *(one["kind"], one["count"], tell_time(one["oldest"])),
            *(", ".join(one["actions"]), one["cause"]),
        )
        for one in counted["causes"]
    ]
    print_table(("kind", "how many", "oldest", "ended by", "cause"), rows, "")
    # An app of a release before counted at that moment.
    if at := counted.get("counted"):
        tell(f"counted {tell_time(at)}, and what came since")
    if counted["more"]:
        tell("there are more than were counted")


def print_standstills(standstills: list[dict[str, Any]]) -> None:
    rows = [
        (
            *(one["kind"], one["session"], one.get("position"), tell_time(one["since"])),
            *(one.get("parked", 0), ", ".join(verb["action"] for verb in one["verbs"])),
            ", raised at ".join((one["cause"], *one.get("raised_at", ())[-1:])),
        )
        for one in standstills
    ]
    columns = ("kind", "session", "at", "since", "parked", "ended by", "cause")
    print_table(columns, rows, "Nothing needs attention.")


def list_sagas(
    context: typer.Context,
    key: Annotated[str | None, typer.Argument(help="one saga's key: shows its steps")] = None,
    state: Annotated[
        str | None,
        typer.Option(
            help="only those that are awaited, running, completed, compensated,"
            " compensation-failed or unfinished, or of those that are running, waiting or overdue"
        ),
    ] = None,
    kind: Annotated[str | None, typer.Option(help="only those of this kind")] = None,
    prefix: Annotated[str, typer.Option(help="only keys that begin with this")] = "",
    changed: Annotated[bool, typer.Option("--changed", help="those that changed last")] = False,
    after: Annotated[str | None, typer.Option(help="go on behind this place")] = None,
    limit: Annotated[int, typer.Option(min=1, help="so many sagas at most")] = SHOWN,
    as_json: AsJson = False,
) -> None:
    """List sagas by key or last change, as their journals have them, or show one with its steps."""
    client = client_of(context)
    if key is not None:
        show_saga(client.get("sagas/-", key=key), as_json)
        return
    empty = "There is no such saga." if state or kind or prefix or after else "No sagas yet."
    asked = {"state": state, "kind": kind, "prefix": prefix or None}
    asked["order"] = "changed" if changed else None
    found = read_pages(client, "sagas", limit, after, asked)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            *(one["key"], one["kind"]),
            one["state"] + (", overdue" if one.get("overdue") else ""),
            *(one.get("waits"), tell_time(one["started"]), tell_time(one["changed"])),
        )
        for one in found["sagas"]
    ]
    columns = ("saga", "kind", "state", "open wait", "started", "last change")
    print_table(columns, rows, empty)
    tell_rest(found)


def show_saga(found: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    facts = [(name, found[name]) for name in ("kind", "state", "reason")]
    facts += [(name, tell_time(found[name])) for name in ("started", "ended")]
    facts += [("due", tell_due(found.get("due")))]
    print_table(("", ""), [("saga", found["key"]), *facts], "")
    nothing = "never begun" if found["ended"] else "none yet"
    steps = [
        (
            *(one["name"], one["outcome"] or nothing, one["session"]),
            *((act or {}).get("at") for act in (one["done"], one["undone"])),
        )
        for one in found["steps"]
    ]
    waits = [(one["name"], one["decision"] or nothing, "", one["at"]) for one in found["waits"]]
    rows = [(*row[:3], *map(tell_time, row[3:])) for row in steps + waits]
    columns = ("step or wait", "outcome", "session", "at", "undone at")
    print_table(columns, rows, "It has no steps.")


def check_health(context: typer.Context, as_json: AsJson = False) -> None:
    """Ask every region how it is. Exit status 1: something is missing; 3: one gave no answer."""
    client = client_of(context)
    found = [ask_health(client, url) for url in client.urls]
    if as_json:
        print_json({"regions": found})
    else:
        rows = [
            (one["url"], one.get("region"), one.get("journal"), describe_wrong(one))
            for one in found
        ]
        print_table(("app", "region", "journal", "what is wrong"), rows, "")
        looks = [overview for one in found if (overview := one.get("overview"))]
        for overview in sorted(looks, key=lambda one: str(one["time"]))[-1:]:
            print_overview(overview)
    if any("error" in one for one in found):
        raise typer.Exit(NO_ANSWER)
    if any(one["missing"] for one in found):
        raise typer.Exit(REFUSED)


def print_overview(overview: Mapping[str, Any]) -> None:
    """Print the newest look of a sweep: what needs attention, and the rates of its minute."""
    rates = ", ".join(f"{rate:.1f} in {region}" for region, rate in overview["rate"].items())
    facts = [("last look", tell_time(overview["time"])), ("messages a second", rates)]
    facts += [
        (one["kind"], f"{write_count(one)}, the oldest {tell_time(one['oldest'])}")
        for one in overview["attention"]
    ]
    if one := overview["reports"]:
        facts += [("reports", f"{write_count(one)}, the oldest {tell_time(one['oldest'])}")]
    sagas = overview.get("sagas", {})
    facts += [
        (f"sagas {name}", f"{write_count(one)}, the oldest {tell_time(one['oldest'])}")
        for name, one in sagas.items()
    ]
    print_table(("", ""), facts, "")
    if len(facts) == 2 + len(sagas) and "overdue" not in sagas:
        sys.stdout.write("Nothing needs attention.\n")


def write_count(one: Mapping[str, Any]) -> str:
    return f"{one['count']}{' or more' if one['more'] else ''}"


def ask_health(client: AppClient, url: str) -> dict[str, Any]:
    try:
        return {"url": url, **client.ask_region(url, "GET", "/api/status")}
    except NoAnswer as error:
        return {"url": url, "error": str(error)}


def describe_wrong(status: Mapping[str, Any]) -> str:
    wrong = [f"{place}: {reason}" for place, reason in status.get("missing", {}).items()]
    for name, one in (status.get("heartbeats") or {}).items():
        # What comes seldom was not heard for a while after a first start.
        if one["silent"] and one["within"] <= OFTEN_SECONDS:
            wrong.append(f"nothing was heard of {name}")
    wrong += [
        f"nothing was heard of region {name}"
        for name, one in (status.get("regions") or {}).items()
        if one["silent"]
    ]
    return str(status.get("error", "; ".join(wrong) or "nothing"))

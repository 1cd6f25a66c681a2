"""Commands about the error queue: what it holds, and sending again or dismissing it."""

import getpass
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from cli.client import AppClient, AppRefused
from cli.decide import Body, Who, Why, Yes, read_body_option, require_yes
from cli.display import print_json, print_table, tell
from cli.failures import REFUSED, Misuse, NoAnswer
from cli.look import PAGE, SHOWN, AsJson, client_of
from shared.domain.json_text import write_object

REPORTS_MAX = 10_000
Limit = Annotated[
    int, typer.Option(min=1, max=REPORTS_MAX, help="so many reports of each region at most")
]
Report = Annotated[
    str | None, typer.Option("--report", help="which report, where the session has several")
]
OneSession = Annotated[str | None, typer.Argument(metavar="[SESSION]", help="the session's name")]
Reason = Annotated[
    str | None, typer.Option("--reason", help="every open report whose reason contains this text")
]


def print_errors(
    context: typer.Context,
    session: Annotated[str | None, typer.Argument(help="the reports of one session")] = None,
    limit: Limit = SHOWN,
    show: Annotated[
        str | None, typer.Option(help="open (the default), fault, ended, or all (of a session)")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List open reports of rejected deliveries, or what the error queues hold; nothing is taken."""
    show = show or ("all" if session else "open")
    found = find_reports(client_of(context), session, limit, show)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            *(one["session"], one["report"], one["type"], describe_place(one)),
            *(describe_next(one), one.get("reason")),
        )
        for one in found["errors"]
    ]
    columns = ("session", "report", "type", "reported in", "what to do", "reason")
    print_table(columns, rows, f"There is nothing that is shown by --show {show}.")
    for region, counts in found["counts"].items():
        tell(f"in {region}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
    if not found["complete"]:
        tell("not all was seen: name a session, or say a higher --limit")
    tell(f"{found['request_units']:.1f} request units")


def find_reports(
    client: AppClient, session: str | None, limit: int, show: str = "all"
) -> dict[str, Any]:
    """The reports of every region's queue, each once, with the regions whose queues hold it.

    What is open any region tells of all, and any region can end it. A region that does not answer
    is told and left out, and then that is not all; raises NoAnswer where none answers.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    units, is_complete, lost = 0.0, True, 0
    counts: dict[str, dict[str, int]] = {}
    is_open = show == "open"
    for url in client.urls:
        try:
            pages = [*read_region(client, url, session, limit, show)]
        except NoAnswer as error:
            lost += 1
            if lost == len(client.urls):
                raise
            client.tell(str(error))
            is_complete &= is_open
            continue
        if not is_open:
            counts[pages[-1]["region"]] = pages[-1]["counts"]
        for page in pages:
            units += page["request_units"]
            for one in page["errors"]:
                known = found.setdefault(
                    (one["session"], one["report"]), {**one, "regions": [], "places": []}
                )
                # Of two looks at a report the later one knows what was decided meanwhile.
                known |= one
                if not is_open:
                    known["regions"].append(page["region"])
                known["places"] += [
                    {"url": place, "sequence": one["sequence"]}
                    for place in (client.urls if is_open else [url])
                ]
        is_complete &= pages[-1]["complete"] and pages[-1]["next"]["after"] is None
        if is_open:
            break
    errors = sorted(found.values(), key=lambda one: (not one["open"], one.get("enqueued", "")))
    return {
        "errors": errors[:limit],
        "complete": is_complete and len(errors) <= limit,
        "counts": counts,
        "request_units": units,
    }


def read_region(
    client: AppClient, url: str, session: str | None, limit: int, show: str
) -> Iterator[dict[str, Any]]:
    """The pages of one region's error queue, until they have so many reports."""
    after: str | None = None
    above: int | None = None
    seen = 0
    while True:
        asked = {"session": session, "after": after, "above": above, "show": show}
        asked["limit"] = max(1, min(PAGE, limit - seen))
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        page = client.ask_region(url, "GET", f"/api/errors?{query}")
        yield page
        seen += len(page["errors"])
        after = page["next"]["after"]
        if after is None and page["next"]["above"] not in (None, above):
            above = page["next"]["above"]
        elif after is None or seen >= limit:
            return


def describe_place(error: dict[str, Any]) -> str:
    """Return the regions whose queues were seen to hold a report."""
    return ", ".join(error["regions"]) or "the journal"


def describe_next(error: dict[str, Any]) -> str:
    """Return what can be done about a report."""
    if dismissed := error.get("dismissed"):
        return f"dismissed by {dismissed['who']}"
    if sent := error.get("sent_again"):
        return f"sent again by {sent['who']}" if sent["done"] else "send-again, to finish it"
    if error["repeatable"]:
        return "send-again, dismiss"
    return "dismiss" if error["open"] else "decide about its session"


def repeat_delivery(
    context: typer.Context,
    why: Why,
    session: OneSession = None,
    report: Report = None,
    reason: Reason = None,
    to: Annotated[str | None, typer.Option("--to", help="another session")] = None,
    message_type: Annotated[str | None, typer.Option("--type", help="another type")] = None,
    time: Annotated[str | None, typer.Option("--time", help="another time of sending")] = None,
    source: Annotated[str | None, typer.Option("--source", help="another source")] = None,
    replyto: Annotated[str | None, typer.Option("--replyto", help="a queue for answers")] = None,
    replysession: Annotated[
        str | None, typer.Option("--replysession", help="a session for answers")
    ] = None,
    correlationid: Annotated[
        str | None, typer.Option("--correlationid", help="the id of the message that it answers")
    ] = None,
    body: Body = None,
    who: Who = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Send rejected deliveries of the error queue again: once, whoever does it where."""
    client = client_of(context)
    reports = choose_reports(client, session, report, reason, lambda one: bool(one["repeatable"]))
    given = {
        "to": to,
        "type": message_type,
        "time": time,
        "source": source,
        "replyto": replyto,
        "replysession": replysession,
        "correlationid": correlationid,
    }
    said = {
        **{name: value for name, value in given.items() if value is not None},
        **read_body_option(body),
    }
    if not yes:
        changes = json.dumps({name: said[name] for name in said if name != "body"})
        for chosen in reports:
            shown = said.get("body", chosen.get("body"))
            properties = json.dumps(chosen.get("properties"), ensure_ascii=False)
            rows = [*describe_chosen(chosen), ("properties", properties), ("body", shown)]
            print_table(("", ""), [*rows, ("instead", changes)], "")
        require_yes(f"Send {len(reports)} again?" if reason else "Send it again?")
    with deciding(client, "errors/again", reports, who, why, said) as decided:
        if as_json:
            print_json({"sent": decided} if reason else decided[0])
            return
        for sent in decided:
            tell(f"sent to session {sent['session']!r} as {sent['id']}")


def dismiss_report(
    context: typer.Context,
    why: Why,
    session: OneSession = None,
    report: Report = None,
    reason: Reason = None,
    who: Who = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Record that nothing is to be done about reports of the error queue; they stay there."""
    client = client_of(context)
    reports = choose_reports(
        client, session, report, reason, lambda one: bool(report or one["open"])
    )
    if not yes:
        for chosen in reports:
            print_table(("", ""), describe_chosen(chosen), "")
        require_yes(f"Dismiss {len(reports)}?" if reason else "Dismiss it?")
    with deciding(client, "errors/dismissal", reports, who, why, {}) as decided:
        if as_json:
            print_json({"dismissed": decided} if reason else decided[0])
            return
        for dismissed in decided:
            tell(f"dismissed report {dismissed['report']} of session {dismissed['session']!r}")


def describe_chosen(chosen: dict[str, Any]) -> list[tuple[str, Any]]:
    """Rows that show a report before a person decides about it."""
    return [
        ("report", chosen["report"]),
        ("reported in", describe_place(chosen)),
        ("rejected because", chosen.get("reason")),
    ]


@contextmanager
def deciding(
    client: AppClient,
    route: str,
    reports: list[dict[str, Any]],
    who: str | None,
    why: str,
    said: dict[str, Any],
) -> Iterator[list[dict[str, Any]]]:
    """Decide about each report and yield the answers; a refusal keeps no other from its decision.

    What was refused among several is told, and the exit status then says so.
    """
    decided = []
    for one in reports:
        try:
            decided.append(decide_about(client, route, one, who, why, said))
        except AppRefused as error:
            if len(reports) == 1 or isinstance(error, NoAnswer):
                raise
            tell(f"session {one['session']!r}: {error}")
    yield decided
    if len(decided) < len(reports):
        raise typer.Exit(REFUSED)


def decide_about(
    client: AppClient,
    route: str,
    chosen: dict[str, Any],
    who: str | None,
    why: str,
    said: dict[str, Any],
) -> Any:
    """The answer of a region that has the report; its number there is that region's own.

    Decided twice it has one effect, so a region that does not answer is no reason to stop.
    """
    named = {"session": chosen["session"], "report": chosen["report"], "why": why, **said}
    for place in chosen["places"]:
        decision = named | {"sequence": place["sequence"], "who": who or getpass.getuser()}
        try:
            body = write_object(decision).encode()
            return client.ask_region(place["url"], "POST", f"/api/{route}", body)
        except NoAnswer as error:
            if place is chosen["places"][-1]:
                raise
            client.tell(f"{error}; asking the next region")
    return None


def choose_reports(
    client: AppClient,
    session: str | None,
    report: str | None,
    reason: str | None,
    is_meant: Callable[[dict[str, Any]], bool],
) -> list[dict[str, Any]]:
    """Return the report of a session that is meant, or all open ones with a text in their reason.

    One that was ended by a decision is meant only where it is named, or alone. Raises Misuse where
    none is meant, and where one of several of a session is.
    """
    if (session is None) == (reason is None):
        raise Misuse("say which: a session, or --reason TEXT")
    if session is None:
        seen = find_reports(client, None, REPORTS_MAX, "open")
        if not seen["complete"]:
            tell("not all was seen: what is left is found when this is said once more")
        meant = [one for one in seen["errors"] if is_meant(one) and reason in one.get("reason", "")]
        if not meant:
            raise Misuse(f"no open report that can be decided so has {reason!r} in its reason")
        return meant
    open_ones = [] if report else find_reports(client, session, REPORTS_MAX, "open")["errors"]
    listed = open_ones or find_reports(client, session, REPORTS_MAX)["errors"]
    can_be: list[dict[str, Any]] = [
        one for one in listed if report in (None, one["report"]) and is_meant(one)
    ]
    found = [one for one in can_be if one["open"]] or can_be
    if not found:
        raise Misuse(f"nothing in the error queue of session {session!r} can be decided so")
    if len(found) > 1:
        raise Misuse(f"{len(found)} reports can be decided so: say which by --report")
    return found

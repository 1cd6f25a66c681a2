"""The commands that follow a session, or all of them, in whichever region answers."""

import json
import sys
from collections import deque
from collections.abc import Iterator
from time import monotonic, sleep
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from cli.client import AppUnavailable
from cli.display import escape_control, tell
from cli.failures import NoAnswer
from cli.look import AsJson, SessionName, client_of, read_session

# For so long an app lets a watcher wait.
WAIT_SECONDS_MAX = 20
# Between two answers, so that what is written meanwhile comes in one.
PAUSE_SECONDS = 0.25
# Until all regions are asked again, where none answered and none said when.
RETRY_SECONDS = 1.0
# How often all sessions are looked at, how many seconds are looked at again, and how many entries
# are told from those that were seen before.
TAIL_SECONDS, LATE_SECONDS, SEEN_MAX = 2.0, 5, 5_000


def watch_session(
    context: typer.Context,
    session: SessionName,
    after: Annotated[
        int | None, typer.Option(min=0, help="a position (default: from the oldest entry on)")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print each entry of a session once it has ended, one a line, until Ctrl-C.

    Where a region gives no answer the next one is asked, from where the last answer ended.
    """
    client = client_of(context)
    urls, failed, has_answered = deque(client.urls), 0, False
    # An app that waits for so long has as long again to answer.
    wait = int(min(WAIT_SECONDS_MAX, client.seconds / 2))
    while True:
        place = {} if after is None else {"after": after}
        asked = urlencode({"session": session, "wait": wait} | place)
        try:
            answer = client.ask_region(urls[0], "GET", f"/api/sessions/-/changes?{asked}")
        except NoAnswer as error:
            failed += 1
            is_last = failed % len(urls) == 0
            if is_last and not has_answered:
                raise
            tell(f"{error}; going on with the next region")
            urls.rotate(-1)
            if is_last:
                wanted = isinstance(error, AppUnavailable) and error.seconds
                sleep(wanted or RETRY_SECONDS)
            continue
        failed, has_answered = 0, True
        for position, name, data in read_events(answer):
            text = json.dumps({"event": name} | data) if as_json else describe_event(name, data)
            sys.stdout.write(f"{text}\n")
            after = position
        sys.stdout.flush()
        sleep(PAUSE_SECONDS)


def tail_sessions(
    context: typer.Context,
    session: Annotated[
        str | None, typer.Argument(metavar="[SESSION]", help="one session (default: all)")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print each entry that is written from now on, one a line, until Ctrl-C.

    Where a region gives no answer the next one is asked, from where the last answer ended.
    """
    client = client_of(context)
    if session is not None:
        head = read_session(client, session)["head"]
        watch_session(context, session, head["position"] if head else None, as_json)
        return
    place: int | None = None
    seen: deque[tuple[str, int]] = deque(maxlen=SEEN_MAX)
    units, began = 0.0, monotonic()
    try:
        while True:
            try:
                found = client.get("changes", since=None if place is None else str(place))
            except NoAnswer as error:
                if place is None:
                    raise
                tell(f"{error}; asking again")
                sleep(RETRY_SECONDS)
                continue
            units += found["request_units"]
            for one in found["changes"]:
                if (key := (one["session"], one["position"])) in seen:
                    continue
                seen.append(key)
                line = f"{escape_control(one['session'])} {describe_event('change', one)}"
                sys.stdout.write(f"{json.dumps(one) if as_json else line}\n")
            sys.stdout.flush()
            until: int = found["until"]
            if not found["more"]:
                # What a part of the store shows late is among those of the next answer.
                place = max(place or 0, until - LATE_SECONDS)
                sleep(TAIL_SECONDS)
            elif until != place:
                place = until
            else:
                tell(f"of second {until} not all entries are shown: there were too many")
                place = until + 1
    finally:
        minutes = max(monotonic() - began, 1.0) / 60
        tell(f"{units:.1f} request units, {units / minutes:.0f} a minute")


def read_events(answer: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """The position, the name and the data of each event in an answer."""
    for block in answer.split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in block.split("\n"))
        if "data" in fields:
            data = json.loads(fields["data"])
            yield int(fields["id"]), fields.get("event", "change"), data


def describe_event(name: str, data: dict[str, Any]) -> str:
    """An event as a line for people."""
    if name == "removed":
        return f"what came before position {data['oldest']} was removed"
    if name == "rewound":
        return f"the journal was restored, and ends at position {data['newest']}"
    parts = [
        f"{data['position']} {data['time'][:19]} {data['status']}",
        ", ".join(f"{one['type']} {one['id']}" for one in data["messages"]),
        f"decided: {data['action']}" if "action" in data else "",
        data.get("reason", ""),
        f"outputs: {' '.join(data['outputs'])}" if data["outputs"] else "",
        f"outputs are {data['kept']}" if "kept" in data else "",
    ]
    return escape_control("  ".join(part for part in parts if part))

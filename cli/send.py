"""Commands that send messages, and the one that starts the sweep."""

import hashlib
import json
import random
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.client import CONNECTIONS, AppClient, AppUnavailable
from cli.decide import read_body_option
from cli.display import open_progress, print_json, print_table
from cli.failures import CommandFailed, Misuse, NoAnswer
from cli.look import AsJson, SessionName, client_of
from shared.domain.json_text import split_object

TRIES = 6
PAUSE_SECONDS_MAX = 30.0
# How many of what is wrong is named; the rest is counted.
NAMED_MAX = 10

MessageType = Annotated[str, typer.Argument(metavar="TYPE", help="the message's type")]
MessageBody = Annotated[str, typer.Argument(help="JSON; @FILE reads a file, - standard input")]
MessageId = Annotated[
    str | None, typer.Option("--id", help="the idempotency key (default: a new one)")
]
SentAt = Annotated[str | None, typer.Option("--time", help="the sender's time")]


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message of a file: under the same id it has one effect, however often it is sent."""

    place: str
    session: str
    type: str
    body: bytes
    id: str
    time: str | None = None


def send_message(
    client: AppClient, message: OutgoingMessage, wish: Mapping[str, str] | None = None
) -> Any:
    """The number that it has from now on, or its answer; raises NoAnswer and AppRefused."""
    query = {"session": message.session, "type": message.type, "time": message.time}
    named = {"Idempotency-Key": message.id, **(wish or {})}
    return client.ask("POST", "sessions/-/messages", query, message.body, named, is_repeatable=True)


def send_one(
    context: typer.Context,
    session: SessionName,
    message_type: MessageType,
    body: MessageBody,
    message_id: MessageId = None,
    sent_at: SentAt = None,
    as_json: AsJson = False,
) -> None:
    """Send one message. Sent again under the same --id within a day it has no second effect."""
    key = message_id or str(uuid.uuid4())
    text = read_body_option(body)["body"].encode()
    try:
        found = send_message(
            client_of(context), OutgoingMessage("", session, message_type, text, key, sent_at)
        )
    except NoAnswer as error:
        raise NoAnswer(f"{error}; the same again with --id {key} is safe") from error
    if as_json:
        print_json(found)
    else:
        print_table(("", ""), [(name, found[name]) for name in ("session", "id", "sequence")], "")


def ask_one(
    context: typer.Context,
    session: SessionName,
    message_type: MessageType,
    body: MessageBody,
    message_id: MessageId = None,
    sent_at: SentAt = None,
    wait: Annotated[
        int, typer.Option("--wait", min=1, max=14, help="seconds for the app to answer in")
    ] = 10,
    as_json: AsJson = False,
) -> None:
    """Have one message applied at once, and print what its handler answers.

    Asked again under the same --id within the window it acts no second time and is answered
    alike. Exit status 1 is a fault or a refusal; 3 says that it is not known yet, or waits.
    """
    key = message_id or str(uuid.uuid4())
    text = read_body_option(body)["body"].encode()
    asked = OutgoingMessage("", session, message_type, text, key, sent_at)
    again = f"the same again with --id {key} is safe, and tells what came of it"
    try:
        found = send_message(client_of(context), asked, {"Prefer": f"wait={wait}"})
    except NoAnswer as error:
        raise NoAnswer(f"{error}; {again}") from error
    if "position" not in found:
        raise NoAnswer(f"it is safe in the journal, and waits or is not processed yet; {again}")
    print_json(found if as_json else found["answer"])


def publish(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="JSON lines; - is standard input")],
    as_json: AsJson = False,
) -> None:
    """Send a file of messages: a line has session, type and body, and an id or a time or not.

    The file is read whole before anything is sent. Sessions are sent side by side, each in the
    order of its lines. Without an id a message is named by its line: the same file sent again
    within a day has no second effect.
    """
    messages = parse_lines(split_file(file))
    sessions: dict[str, list[OutgoingMessage]] = {}
    for message in messages:
        sessions.setdefault(message.session, []).append(message)
    ends = send_side_by_side(client_of(context), list(sessions.values()))
    sent = sum(end.sent for end in ends)
    errors = [end.error for end in ends if end.error]
    if as_json:
        print_json({"sent": sent, "of": len(messages), "failed": [str(one) for one in errors]})
    else:
        print_table(("sent", "of"), [(sent, len(messages))], "")
    if errors:
        more = f", and {len(errors) - NAMED_MAX} more" if len(errors) > NAMED_MAX else ""
        text = "; ".join(map(str, errors[:NAMED_MAX])) + more
        again = "the same file again is safe within a day: what was sent has no second effect"
        is_lost = any(isinstance(one, NoAnswer) for one in errors)
        raise (NoAnswer if is_lost else CommandFailed)(f"{text}; {again}")


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """The number of messages of a session that were sent, and why no more."""

    sent: int
    error: CommandFailed | None = None


def send_side_by_side(
    client: AppClient, sessions: Sequence[Sequence[OutgoingMessage]]
) -> list[SessionEnd]:
    """Send sessions side by side, each in order, until no app answers any more."""
    stopping = threading.Event()
    with open_progress() as progress, ThreadPoolExecutor(CONNECTIONS) as pool:
        task = progress.add_task("sent", total=sum(map(len, sessions)))

        def send_all(own: Sequence[OutgoingMessage]) -> SessionEnd:
            for count, message in enumerate(own):
                if stopping.is_set():
                    return SessionEnd(count)
                try:
                    send_patiently(client, message)
                except NoAnswer as error:
                    stopping.set()
                    return SessionEnd(count, NoAnswer(f"{message.place}: {error}"))
                except CommandFailed as error:
                    # What follows in the session must not overtake it.
                    return SessionEnd(count, CommandFailed(f"{message.place}: {error}"))
                progress.advance(task)
            return SessionEnd(len(own))

        try:
            return list(pool.map(send_all, sessions))
        finally:
            # Ctrl-C: what is under way ends, nothing more is begun.
            stopping.set()


def send_patiently(client: AppClient, message: OutgoingMessage) -> None:
    """Send it, and again where the app could not take it for the moment; raises as `ask` does."""
    for tried in range(1, TRIES + 1):
        try:
            send_message(client, message)
            return
        except NoAnswer as error:
            if tried == TRIES:
                raise
            asked = error.seconds if isinstance(error, AppUnavailable) else 0.0
            pause = max(asked, random.uniform(0.5, 1.0) * 2**tried / 4)  # noqa: S311 - a pause
            time.sleep(min(pause, PAUSE_SECONDS_MAX))


def split_file(file: Path) -> list[str]:
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(f"{file} cannot be read: {error}") from None
    # Not splitlines(): JSON may hold other ends of lines than this one in its texts.
    return text.split("\n")


def parse_lines(lines: Iterable[str]) -> list[OutgoingMessage]:
    """Every line as a message; raises Misuse, which names the lines that are none."""
    messages, wrong = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            messages.append(parse_line(number, line))
        except ValueError as error:
            wrong.append(f"line {number}: {error}")
    if wrong:
        more = f"; and {len(wrong) - NAMED_MAX} more" if len(wrong) > NAMED_MAX else ""
        raise Misuse(f"nothing was sent: {'; '.join(wrong[:NAMED_MAX])}{more}")
    return messages


def parse_line(number: int, line: str) -> OutgoingMessage:
    """A line as a message, its body as it was given; raises ValueError."""
    members = split_object(line)
    found = {name: json.loads(text) for name, text in members.items()}
    if unknown := sorted(found.keys() - {"session", "type", "body", "id", "time"}):
        raise ValueError(f"{unknown[0]!r} is no field of a message")
    for name in ("session", "type"):
        if not isinstance(found.get(name), str) or not found[name]:
            raise ValueError(f"it has no {name}")
    if "body" not in found:
        raise ValueError("it has no body")
    for name in ("id", "time"):
        if not isinstance(found.get(name, ""), str):
            raise ValueError(f"its {name} is no text")
    body = members["body"].encode()
    content = json.dumps([number, found["session"], found["type"], found["body"]])
    named = found.get("id") or hashlib.sha256(content.encode()).hexdigest()
    place = f"line {number}"
    return OutgoingMessage(place, found["session"], found["type"], body, named, found.get("time"))


def sweep(context: typer.Context, as_json: AsJson = False) -> None:
    """Start the sweep in every region of LOCKSTEP_URL now. It needs the app's master key."""
    client, json_headers = client_of(context), {"Content-Type": "application/json"}
    started = []
    for url in client.urls:
        client.ask_region(url, "POST", "/admin/functions/sweep", b'{"input": ""}', json_headers)
        started.append(url)
    if as_json:
        print_json({"started": started})
    else:
        print_table(("the sweep was started at",), [(url,) for url in started], "")

"""The troubles of the incident: how they are made, and what is true of them, read beside the app.

Three hundred sessions are halted by two causes, outputs are blocked at a queue that is not there,
deliveries were rejected, sagas wait for a person, and then a region is lost. One cause is repaired
outside (a service that refused), and the other one is in the messages themselves.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from cli.cloud import KEY, app_settings
from local.testing.cloud import CloudProcess
from local.testing.control import request_json
from local.testing.patience import wait_until
from proof.bench.load import make_status
from proof.testbed.command import RunFailed, show_progress
from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.domain.message import Message, Number, derive_id, digest_content
from shared.settings import Settings
from shared.wiring import Adapters, open_producer

GROUP = "incident"
NOWHERE, OWN_QUEUE, OUTPUT_QUEUE = "nowhere", "lockstep", "lockstep-out"
OUTPUTS_MAX = 1_000
SECONDS_MAX = 600.0
APPROVAL_SECONDS = 24 * 3600
SENT_AT_ONCE = 16
SENDING_TRIES_MAX, SENDING_PAUSE_SECONDS = 20, 5.0


@dataclass(frozen=True, slots=True)
class Amounts:
    """The numbers of sessions halted by each cause, of blocked ones, rejected deliveries, sagas."""

    halted: int = 150
    blocked: int = 10
    reports: int = 12
    sagas: int = 5


@dataclass
class BrokenService:
    """The service that notices go to: it refuses everything until it is repaired."""

    url: str = ""
    is_repaired: bool = False
    # By key, what was accepted.
    taken: dict[str, Any] = field(default_factory=dict)


@contextmanager
def running_notice_service() -> Iterator[BrokenService]:
    service = BrokenService()

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if service.is_repaired:
                service.taken[self.headers["Idempotency-Key"]] = body
            answer = json.dumps({"receipt": "r"}).encode()
            self.send_response(200 if service.is_repaired else 400)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()


def make_line(number: int, n: int) -> bytes:
    return b'{"text":"line %d of %d"}' % (n, number)


def make_number(session: str, n: int, kind: str, body: bytes) -> Message:
    return Message(derive_id(session, str(n)), session, kind, body, Number(GROUP, 0, n))


def make_messages(amounts: Amounts) -> dict[str, list[Message]]:
    """Two messages of each session: the first one is the trouble, the second waits behind it."""
    made: dict[str, list[Message]] = {}
    for number in range(amounts.halted):
        session = f"flight-{number:03d}"
        good = make_status(session, 1)
        made[session] = [
            make_number(session, 0, "flight.status", b'{"at":1}'),
            make_number(session, 1, good.type, good.body.rstrip()),
        ]
        session = f"recipient-{number:03d}"
        made[session] = [
            make_number(session, n, "notice.send", b'{"subject":"n%d","text":"%d"}' % (n, number))
            for n in range(2)
        ]
    for number in range(amounts.blocked):
        session = f"report-{number:02d}"
        made[session] = [
            make_number(session, n, "report.write", make_line(number, n)) for n in range(2)
        ]
    return made


def make_strays(amounts: Amounts) -> list[Message]:
    """Deliveries with neither a number nor a time: nobody can tell them from copies."""
    names = [f"stray-{number:02d}" for number in range(amounts.reports)]
    return [
        Message(derive_id(name), name, "flight.status", make_status(name, 0).body.rstrip())
        for name in names
    ]


def ask_app(cloud: CloudProcess, method: str, path: str, document: Any = None) -> Any:
    """The document that the region which is left answers; raises RunFailed."""
    url = f"{cloud.contract['hosts'][cloud.regions[-1]]}/api/{path}"
    headers = {"x-functions-key": KEY, "Idempotency-Key": derive_id(path)}
    status, found = request_json(method, url, document, headers=headers)
    if status >= 300:
        raise RunFailed(f"{method} {path}: {status} {found}")
    return found


async def send_all(cloud: CloudProcess, amounts: Amounts) -> None:
    settings = Settings.read(app_settings(cloud))
    slots = asyncio.Semaphore(SENT_AT_ONCE)
    async with open_producer(settings) as producer:

        async def send(own: list[Message]) -> None:
            async with slots:
                for tries_left in reversed(range(SENDING_TRIES_MAX)):
                    try:
                        await producer.send(own)
                        return
                    except (Unavailable, OutcomeUnknown):
                        # On a busy machine a region may give no answer: the same is sent again.
                        if not tries_left:
                            raise
                        await asyncio.sleep(SENDING_PAUSE_SECONDS)

        await asyncio.gather(*map(send, make_messages(amounts).values()))
    adapters = Adapters.of(settings)
    try:
        for region in cloud.regions:
            for stray in make_strays(amounts):
                await adapters.bus.send(region, OWN_QUEUE, [stray])
    finally:
        await adapters.close()


def make_trouble(cloud: CloudProcess, amounts: Amounts) -> None:
    """Send everything, start the sagas, and wait until every trouble is there."""
    asyncio.run(send_all(cloud, amounts))
    ask_app(cloud, "POST", "sessions/stock%3Ap/messages?type=stock.receive", {"quantity": 1_000})
    wait_until(
        lambda: "stock:p" in Truth.read(cloud).heads,
        seconds=SECONDS_MAX,
        what="no stock",
        error=RunFailed,
    )
    for number in range(amounts.sagas):
        order = {
            "customer": f"c-{number}",
            "lines": [{"product": "p", "quantity": 1}],
            "amount": 0,
            "approval_seconds": APPROVAL_SECONDS,
        }
        ask_app(cloud, "POST", f"sagas/order-{number}?type=order.place", order)

    shown = list[dict[str, tuple[int, int]]]()

    def is_there() -> bool:
        truth = Truth.read(cloud)
        stock = truth.heads.get("stock:p", {}).get("state") or {}
        waiting = sum(bool(truth.heads[one].get("parked")) for one in truth.halted)
        counts = {
            "halted": (len(truth.halted), 2 * amounts.halted),
            "with a message behind it": (waiting, 2 * amounts.halted),
            "blocked": (len(truth.blocked), amounts.blocked),
            "reserved": (len(stock.get("reserved", ())), amounts.sagas),
            "reports": (len(read_report_ids(cloud)), 2 * amounts.halted + amounts.reports),
            "pending": (len(truth.pending), 0),
        }
        if counts not in shown[-1:]:
            shown.append(counts)
            show_progress(", ".join(f"{name} {n} of {most}" for name, (n, most) in counts.items()))
        return all(n == most for n, most in counts.values())

    wait_until(is_there, seconds=SECONDS_MAX, what="the troubles are not there", error=RunFailed)


def read_report_ids(cloud: CloudProcess) -> set[tuple[str, str]]:
    """Return session and id of each report in the region that will be left, by the broker."""
    found = cloud.control.read_queue(cloud.regions[-1], "lockstep-errors")
    return {(one["session"], one["id"]) for one in found if one["state"] == "active"}


async def read_outputs(cloud: CloudProcess, region: str) -> list[tuple[str, bytes]]:
    """Session and body of what lies in the output queue of a region."""
    adapters = Adapters.of(Settings.read(app_settings(cloud)))
    try:
        found = await adapters.bus.browse_sessions(region, OUTPUT_QUEUE, OUTPUTS_MAX)
    finally:
        await adapters.close()
    return sorted((one.session, one.body) for one in found.messages)


@dataclass(frozen=True, slots=True)
class Truth:
    """The content of the journal's documents, read by the plain Azure SDK."""

    heads: Mapping[str, Mapping[str, Any]]
    # By session, all that took effect, in order: id and digest.
    done: Mapping[str, list[tuple[str, str]]]
    blocked: frozenset[str]
    # A session may have several.
    blocked_entries: int
    pending: frozenset[str]

    @classmethod
    def read(cls, cloud: CloudProcess) -> "Truth":
        with cloud.open_container() as container:
            found = list(
                container.query_items(
                    "SELECT * FROM c WHERE c.kind = 'entry'", enable_cross_partition_query=True
                )
            )
        heads: dict[str, Mapping[str, Any]] = {}
        done: dict[str, list[tuple[str, str]]] = {}
        for entry in sorted(found, key=lambda one: (one["session"], one["id"])):
            heads[entry["session"]] = entry
            if entry["status"] == "completed":
                done.setdefault(entry["session"], []).extend(
                    (one["id"], one["digest"]) for one in entry["identities"]
                )
        return cls(
            heads,
            done,
            frozenset(one["session"] for one in found if one.get("blocked")),
            sum(bool(one.get("blocked")) for one in found),
            frozenset(one["session"] for one in found if one.get("pending")),
        )

    @property
    def halted(self) -> frozenset[str]:
        return frozenset(name for name, head in self.heads.items() if head.get("halt"))


def find_hidden(cloud: CloudProcess) -> list[str]:
    """Name what the list of faults does not say of the journal, or says without a reason."""
    before = Truth.read(cloud)
    listed = {kind: set[str]() for kind in ("halt", "blocked")}
    for kind, sessions in listed.items():
        after = ""
        while after is not None:
            path = f"faults?kind={kind}" + (f"&after={after}" if after else "")
            page = ask_app(cloud, "GET", path)
            sessions |= {one["session"] for one in page["standstills"]}
            after = page["after"]
    wrong, later = list[str](), Truth.read(cloud)
    # A sweep may end some while they are listed.
    for kind, was, still in (
        ("halt", before.halted, later.halted),
        ("blocked", before.blocked, later.blocked),
    ):
        missing, surplus = (was & still) - listed[kind], listed[kind] - (was | still)
        if missing or surplus:
            wrong.append(f"{kind}: {len(missing)} missing, {len(surplus)} too many")
    return wrong


def find_wrong_effects(cloud: CloudProcess, amounts: Amounts, service: BrokenService) -> list[str]:
    """Name what was not processed as it was sent: bodies are compared by their digests."""
    truth, wrong = Truth.read(cloud), list[str]()
    for session, sent in make_messages(amounts).items():
        # Those whose first message could never be processed were skipped.
        wanted = sent[1:] if session.startswith("flight-") else sent
        effects = [(one.id, digest_content(one.type, one.body)) for one in wanted]
        if truth.done.get(session) != effects:
            wrong.append(f"{session}: {truth.done.get(session)} in place of {effects}")
    lines = sorted(
        (f"report-{number:02d}", make_line(number, n))
        for number in range(amounts.blocked)
        for n in range(2)
    )
    for region in cloud.regions:
        if (outputs := asyncio.run(read_outputs(cloud, region))) != lines:
            wrong.append(f"{OUTPUT_QUEUE} of {region} has {outputs}")
    for stray in make_strays(amounts):
        digests = [digest for _, digest in truth.done.get(stray.session, [])]
        if digests != [digest_content(stray.type, stray.body)]:
            wrong.append(f"{stray.session}: {digests}")
    notices = sorted(
        (one["recipient"], one["subject"], one["text"]) for one in service.taken.values()
    )
    if notices != sorted(
        (f"recipient-{number:03d}", f"n{n}", str(number))
        for number in range(amounts.halted)
        for n in range(2)
    ):
        wrong.append(f"the service has {len(notices)} notices, or other ones")
    wrong += [
        f"order-{number} is {state}"
        for number in range(amounts.sagas)
        if (state := ask_app(cloud, "GET", f"sagas/order-{number}")["state"]) != "completed"
    ]
    return wrong + [f"halted: {name}" for name in truth.halted]

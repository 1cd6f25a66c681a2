"""An app that answers over HTTP what a test says, and keeps what it was asked."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    key: str | None
    idempotency_key: str | None
    body: Any
    prefer: str | None = None


type Respond = Callable[[Asked], tuple[int, Any]]


@dataclass
class FakeApp:
    """Its address, and every request in the order of coming."""

    url: str
    asked: list[Asked] = field(default_factory=list)


@contextmanager
def running_app(respond: Respond) -> Iterator[FakeApp]:
    """Serve on loopback for one `with` block.

    None as a document is never answered at all, and bytes are answered as they are.
    """
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            asked = Asked(
                self.command,
                self.path,
                self.headers.get("x-functions-key"),
                self.headers.get("Idempotency-Key"),
                json.loads(body) if body else None,
                self.headers.get("Prefer"),
            )
            app.asked.append(asked)
            status, document = respond(asked)
            if document is None:
                over.wait(20)
                return
            text = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET  # noqa: N815 - as BaseHTTPRequestHandler names it

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    app = FakeApp(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield app
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()

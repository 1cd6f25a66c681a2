"""An HTTP server on loopback whose every answer a function gives."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

from werkzeug import Request, Response
from werkzeug.serving import make_server

# It would tell of every request.
logging.getLogger("werkzeug").setLevel(logging.WARNING)


@contextmanager
def serving(answer: Callable[[Request], Response]) -> Iterator[str]:
    """Serve for the length of a `with` block, requests side by side, and yield the address."""
    server = make_server("127.0.0.1", 0, Request.application(answer), threaded=True)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()

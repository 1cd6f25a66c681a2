"""Ports are held until a cloud takes them, and a control endpoint's refusals have their reasons."""

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from local.testing.cloud import HOST, PORTS, is_free, is_open, reserve_ports
from local.testing.control import ControlClient, ControlRefused, flatten_counters, subtract_tallies


class Endpoint(BaseHTTPRequestHandler):
    """Refuses every fault, and has counted two reads."""

    def do_GET(self) -> None:
        row = {"count": 2, "bytes": 10, "request_units": 3.0}
        self.respond(200, f'{{"cosmos": {{"read": {{"200": {row}}}}}, "queues": {{}}}}')

    def do_POST(self) -> None:
        self.respond(400, '{"error": "no such fault"}')

    def respond(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(text.replace("'", '"').encode())

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def control() -> Iterator[ControlClient]:
    with HTTPServer((HOST, 0), Endpoint) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield ControlClient(f"http://{HOST}:{server.server_port}")
        server.shutdown()


def test_reserved_ports_are_nobody_elses_and_a_listener_gets_them() -> None:
    with reserve_ports() as base:
        assert not any(is_free(port) for port in range(base, base + PORTS))
        assert not is_open(base)
        with socket.create_server((HOST, base)):
            assert is_open(base)
    assert is_free(base + 1)
    with reserve_ports(2, base + 1) as again:
        assert again == base + 1
        assert not is_free(base + 2)
    with (
        socket.create_server((HOST, base + 2)),
        pytest.raises(OSError, match="in use"),
        reserve_ports(3, base),
    ):
        pass


def test_counters_are_read_and_flattened(control: ControlClient) -> None:
    tallies = flatten_counters(control.read_counters())

    assert tallies == {("cosmos", "read", "200"): (2, 3.0)}
    assert subtract_tallies({}, tallies) == tallies
    assert subtract_tallies(tallies, tallies) == {}


def test_a_refusal_has_its_reason_and_so_has_silence(control: ControlClient) -> None:
    with pytest.raises(ControlRefused, match=r"POST /faults: 400 .*no such fault"):
        control.arm({"component": "moon", "action": "down"})
    with reserve_ports() as base, pytest.raises(ControlRefused, match="GET /hosts: no answer"):
        ControlClient(f"http://{HOST}:{base}").read_hosts()

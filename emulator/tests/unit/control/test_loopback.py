"""A service on this machine that stops, and a port that is held for one that comes and goes."""

import asyncio
import socket
import sys
from threading import Event

import pytest
from aiohttp import web

from local.loopback import HOST, LoopbackService, PortTaken, held_port


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets two sockets share a port")
def test_a_held_port_can_be_listened_on_again_and_again_and_is_nobody_elses_in_between() -> None:
    with held_port(0, "a part") as port:
        for _ in range(2):
            with socket.create_server((HOST, port)), socket.create_connection((HOST, port)):
                pass
            with socket.socket() as client, pytest.raises(ConnectionRefusedError):
                client.connect((HOST, port))
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind((HOST, port))


def test_a_port_on_which_somebody_listens_is_refused_by_its_number_and_name() -> None:
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} for a part"), held_port(port, "a part"):
            pass


def test_a_port_is_free_when_it_is_held_no_longer() -> None:
    with held_port(0, "a part") as port:
        pass
    with socket.socket() as other:
        other.bind((HOST, port))


def test_when_a_service_stops_so_does_an_answer_whose_client_is_gone() -> None:
    asked, ended = Event(), Event()

    async def wait_for_ever(_: web.BaseRequest) -> web.StreamResponse:
        asked.set()
        try:
            return await asyncio.Future[web.StreamResponse]()
        finally:
            ended.set()

    service = LoopbackService("a part")
    service.start(wait_for_ever)
    with socket.create_connection((HOST, service.ports[0])) as client:
        client.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}:{service.ports[0]}\r\n\r\n".encode())
        assert asked.wait(60)
    service.stop()

    assert ended.is_set()

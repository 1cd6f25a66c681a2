"""A port that is held for somebody who listens on it now and then."""

import socket
import sys

import pytest

from local.loopback import HOST, PortTaken, held_port


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

"""A namespace whose process is killed: what it acknowledged is kept."""

import subprocess
import sys
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.wire.service_bus import receive, running_bus

pytestmark = pytest.mark.wire
ROOT = Path(__file__).parents[2]
SERVE = """
import sys, threading
from pathlib import Path
from tests.wire.service_bus import running_bus
with running_bus(Path(sys.argv[1])) as bus:
    print(bus.namespace.connection_string, flush=True)
    threading.Event().wait()
"""


def test_every_acknowledged_send_outlives_a_sigkill(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SERVE, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            with (
                ServiceBusClient.from_connection_string(address, retry_total=0) as client,
                client.get_queue_sender("flights") as sender,
            ):
                for number in range(50):
                    sender.send_messages(ServiceBusMessage(str(number), session_id="N101"))
                process.kill()
        finally:
            process.kill()

    with running_bus(tmp_path) as bus, bus.receiver("flights", "N101") as receiver:
        messages = receive(receiver, 50)
        for message in messages:
            receiver.complete_message(message)
    assert [str(message) for message in messages] == [str(number) for number in range(50)]

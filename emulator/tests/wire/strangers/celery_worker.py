"""Celery over kombu's transport for Service Bus: tasks are sent, run, and one is tried again.

Told `host:port` of a namespace; prints what ran. kombu makes its own queues. It knows names of
Azure only and no emulator, so the SDK's clients are told here where they really go.
"""

import sys
import threading
from typing import Any

from azure.core.pipeline.transport import RequestsTransport
from azure.servicebus import ServiceBusClient
from azure.servicebus.management import ServiceBusAdministrationClient
from celery import Celery
from celery.contrib.testing.worker import start_worker
from kombu.transport import azureservicebus

WAIT_SECONDS = 60


class PlainHttp(RequestsTransport):
    def send(self, request: Any, **options: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return super().send(request, **options)


def localize(text: str) -> str:
    return text.replace(".servicebus.windows.net", "") + ";UseDevelopmentEmulator=true"


class LocalClient(ServiceBusClient):
    @classmethod
    def from_connection_string(cls, text: str, **options: Any) -> Any:
        return ServiceBusClient.from_connection_string(localize(text), **options)


class LocalAdministration(ServiceBusAdministrationClient):
    @classmethod
    def from_connection_string(cls, text: str, **options: Any) -> Any:
        return ServiceBusAdministrationClient.from_connection_string(
            localize(text), transport=PlainHttp(), **options
        )


azureservicebus.ServiceBusClient = LocalClient
azureservicebus.ServiceBusAdministrationClient = LocalAdministration
app = Celery(
    "stranger",
    broker=f"azureservicebus://RootManageSharedAccessKey:SAS_KEY_VALUE@{sys.argv[1]}",
    broker_transport_options={"wait_time_seconds": 1},
    worker_enable_remote_control=False,
)
ran: list[tuple[int, int]] = []
done = threading.Event()


@app.task(name="note", bind=True, max_retries=3)
def note(task: Any, number: int) -> None:
    if number == 3 and task.request.retries == 0:
        raise task.retry(countdown=0)
    ran.append((number, task.request.retries))
    if len(ran) == 5:
        done.set()


for number in range(5):
    note.delay(number)
with start_worker(
    app, pool="solo", concurrency=1, perform_ping_check=False, shutdown_timeout=WAIT_SECONDS
):
    done.wait(WAIT_SECONDS)
print("ran", sorted(ran), flush=True)

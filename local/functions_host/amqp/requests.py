"""Requests over AMQP: `$cbs` for tokens and `<entity>/$management` for locks."""

import asyncio
import uuid
from collections.abc import Mapping
from itertools import count
from typing import Any

import proton

from local.functions_host.amqp.connection import AmqpConnection
from local.functions_host.amqp.errors import ConnectionLost, RequestRefused

ANSWER_SECONDS = 10.0


class RequestNode:
    """A pair of links to one node: requests go out, answers come back by correlation id."""

    def __init__(self, connection: AmqpConnection, node: str) -> None:
        reply_to = f"{node}-{uuid.uuid4()}"
        self._connection = connection
        self._reply_to = reply_to
        self._ids = count(1)
        self._waiting: dict[str, asyncio.Future[proton.Message]] = {}
        self.is_open = True
        self._sender = connection.sender(f"{reply_to}-out", self)
        self._sender.source.address = reply_to
        self._sender.target.address = node
        self._receiver = connection.receiver(f"{reply_to}-in", self)
        self._receiver.source.address = node
        self._receiver.target.address = reply_to
        self._sender.open()
        self._receiver.open()
        self._receiver.flow(100)
        connection.flush()

    async def ask(self, properties: Mapping[str, Any], body: Any) -> Any:
        """Send one request and return the body of its answer.

        Raises RequestRefused on a status outside 200..299, ConnectionLost when no answer comes.
        """
        if not self.is_open:
            raise ConnectionLost("the links to the node are gone")
        request_id = str(next(self._ids))
        request = proton.Message(
            id=request_id, reply_to=self._reply_to, properties=dict(properties), body=body
        )
        answer = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        self._sender.send(request)
        self._connection.flush()
        try:
            return body_of(await asyncio.wait_for(answer, ANSWER_SECONDS))
        except TimeoutError as error:
            raise ConnectionLost(f"no answer to {properties['operation']}") from error
        finally:
            self._waiting.pop(request_id, None)

    def close(self) -> None:
        """Detach both links."""
        self.is_open = False
        self._connection.forget(self._sender)
        self._connection.forget(self._receiver)

    def on_attached(self) -> None:
        """Requests may be sent before, too: the engine keeps them until there is credit."""

    def on_detached(self, condition: str, description: str) -> None:
        """Whoever waits learns that no answer will come."""
        self.is_open = False
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionLost(f"{condition} {description}".strip()))

    def on_flow(self) -> None:
        """The engine sends when there is credit."""

    def on_message(self, delivery: proton.Delivery, content: bytes) -> None:
        """An answer arrived."""
        answer = proton.Message()
        answer.decode(content)
        delivery.update(proton.Delivery.ACCEPTED)
        delivery.settle()
        self._receiver.flow(1)
        waiting = self._waiting.get(str(answer.correlation_id))
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def on_settled(self, delivery: proton.Delivery) -> None:
        """A request was taken; its answer comes as a message of its own."""


def body_of(answer: proton.Message) -> Any:
    """Return an answer's body, or raise RequestRefused; the two nodes spell the status apart."""
    properties: dict[str, Any] = dict(answer.properties or {})
    status = int(properties.get("statusCode", properties.get("status-code", 500)))
    if not 200 <= status < 300:
        description = properties.get("statusDescription", properties.get("status-description"))
        condition = str(properties.get("errorCondition", status))
        raise RequestRefused(condition, str(description))
    return answer.body

"""Service Bus's management API over HTTP: queues, topics, subscriptions and rules come and go.

    GET, PUT, DELETE  /{queue or topic}
    GET, PUT, DELETE  /{topic}/subscriptions/{name}
    GET, PUT, DELETE  /{topic}/subscriptions/{name}/rules/{name}
    GET  /$Resources/queues, /$Resources/topics, /{topic}/subscriptions, .../{name}/rules
    GET  /$namespaceinfo

On the port of AMQP, so one connection string serves both; the official emulator has a port of its
own for it. A PUT creates, and with `If-Match` updates. The token is that of AMQP. WebSockets come
this way, too, and are refused.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from aiohttp import web

from local.servicebus.admin_api import atom
from local.servicebus.amqp.errors import (
    STATUS_BAD_REQUEST,
    STATUS_OF_CONDITION,
    AmqpError,
    ErrorCondition,
)
from local.servicebus.broker import Broker
from local.servicebus.config import (
    InvalidConfig,
    parse_queue,
    parse_subscription,
    parse_topic,
    subscription_path,
)
from local.servicebus.entities.catalog import EntityCatalog
from local.servicebus.entities.entity import EntityKind, MessagingEntity
from local.servicebus.entities.queue import Queue
from local.servicebus.entities.topic import Topic
from local.servicebus.nodes.authorization import verify_token
from local.servicebus.rules import MATCH_ALL, RuleSet, SubscriptionRule, UnsupportedRule

PAGE_MAX = 100
WEBSOCKET_PATH = "/$servicebus/websocket"  # where clients look for AMQP in a WebSocket
NO_WEBSOCKETS = (
    "AMQP over WebSockets is not offered. Set the client's transport to AMQP over TCP: "
    "ServiceBusTransportType.AmqpTcp in .NET, AmqpTransportType.AMQP in Java, TransportType.Amqp "
    "in Python; in JavaScript leave out webSocketOptions, and in Go NewWebSocketConn."
)
PATH = re.compile(
    r"(?P<entity>.+?)"
    r"(?P<subscriptions>/subscriptions(/(?P<subscription>[^/]+)(?P<rules>/rules(/(?P<rule>[^/]+))?)?)?)?",
    re.IGNORECASE,
)
for prefix, namespace in (("", atom.ATOM), ("sb", atom.SERVICE_BUS), ("i", atom.INSTANCE)):
    ElementTree.register_namespace(prefix, namespace)


class Administration:
    """The management API of one namespace, used on its loop's thread only."""

    def __init__(
        self, name: str, broker: Broker, catalog: EntityCatalog, detach: Callable[[str], None]
    ) -> None:
        """`detach` ends the links to an entity and what lies below it."""
        self._name = name
        self._broker = broker
        self._catalog = catalog
        self._detach = detach
        self._started = datetime.now(UTC)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request; what it changed is durable before it is answered."""
        if is_for_websockets(request):
            return refuse_request(501, NO_WEBSOCKETS)
        if "Origin" in request.headers:  # a page in a browser
            return refuse_request(403, "no pages of elsewhere")
        body = await request.read()
        try:
            with self._broker.transaction():
                self._authorize(request)
                answer = self._answer(request, body)
        except AmqpError as error:
            status = STATUS_OF_CONDITION.get(error.condition, STATUS_BAD_REQUEST)
            response = refuse_request(status, error.description)
        except UnsupportedRule as error:
            response = refuse_request(501, str(error))
        except (InvalidConfig, ValueError) as error:
            response = refuse_request(STATUS_BAD_REQUEST, str(error))
        else:
            status = 201 if request.method == "PUT" else 200
            response = write_answer(status, answer)
        self._broker.interceptor.count("administer", str(response.status))
        return response

    def _authorize(self, request: web.BaseRequest) -> None:
        path, expiry = verify_token(request.headers.get("Authorization", ""))
        asked = unquote(request.path).strip("/").lower()
        if expiry <= self._broker.now() or not f"{asked}/".startswith(f"{path}/" if path else ""):
            raise AmqpError(ErrorCondition.UNAUTHORIZED, "The token does not cover this, or ended")

    def _answer(self, request: web.BaseRequest, body: bytes) -> Element | None:
        """The answer's XML; raises AmqpError, InvalidConfig or UnsupportedRule."""
        url = f"http://{request.host}{request.path}"
        path = unquote(request.path).strip("/")
        if path.startswith("$") and request.method == "GET":
            return self._answer_namespace(request, url, path.lower())
        match = PATH.fullmatch(path)
        if match is None or "$" in path.replace("$Default", ""):
            raise AmqpError(ErrorCondition.NOT_FOUND, f"There is nothing at {path!r}")
        entity, subscription, rule = match["entity"], match["subscription"], match["rule"]
        if match["subscriptions"] is None:
            return self._answer_entity(request, url, entity, body)
        if subscription is None:
            return self._list(request, (one.name for one in self._find_topic(entity).subscriptions))
        if match["rules"] is None:
            return self._answer_subscription(request, url, (entity, subscription), body)
        return answer_rules(
            request, url, self._find_rules(subscription_path(entity, subscription)), rule, body
        )

    def _answer_namespace(self, request: web.BaseRequest, url: str, path: str) -> Element:
        if path == "$namespaceinfo":
            return atom.write_entry(url, self._name, self._describe_namespace())
        kinds = {"$resources/queues": EntityKind.QUEUE, "$resources/topics": EntityKind.TOPIC}
        if path not in kinds:
            raise AmqpError(ErrorCondition.NOT_FOUND, f"There is nothing at {path!r}")
        found = [one.name for one in self._catalog.entities if one.kind is kinds[path]]
        return self._list(request, found)

    def _answer_entity(
        self, request: web.BaseRequest, url: str, name: str, body: bytes
    ) -> Element | None:
        """Answer about a queue or topic. One that is not there is an empty feed, as from Azure."""
        if request.method == "PUT":
            kind = "Topic" if b"TopicDescription" in body else "Queue"
            properties = atom.read_properties(atom.read_description(body, f"{kind}Description"))
            document = {"Name": name, "Properties": properties}
            if kind == "Topic":
                self._catalog.put(parse_topic(document), update=is_update(request))
            else:
                self._catalog.put(parse_queue(document), update=is_update(request))
        elif request.method == "DELETE":
            self._remove(name)
            return None
        try:
            return self._describe(url, name)
        except AmqpError:
            return atom.write_feed(url, (), None)

    def _answer_subscription(
        self, request: web.BaseRequest, url: str, names: tuple[str, str], body: bytes
    ) -> Element | None:
        topic, name = names
        path = subscription_path(topic, name)
        if request.method == "PUT":
            description = atom.read_description(body, "SubscriptionDescription")
            document = {"Name": name, "Properties": atom.read_properties(description)}
            config = parse_subscription(document, self._find_topic(topic).name)
            rule = description.find(f"{{{atom.SERVICE_BUS}}}DefaultRuleDescription")
            if rule is not None:
                title = rule.findtext(f"{{{atom.SERVICE_BUS}}}Name") or MATCH_ALL[0].name
                config = replace(config, rules=(atom.read_rule_description(rule, title),))
            self._catalog.put(config, update=is_update(request))
        elif request.method == "DELETE":
            self._remove(path)
            return None
        return self._describe(url, path)

    def _remove(self, name: str) -> None:
        self._catalog.remove(name)
        self._detach(name)

    def _find(self, name: str) -> MessagingEntity:
        return self._catalog.find_node(name)[0]

    def _find_topic(self, name: str) -> Topic:
        entity = self._find(name)
        if not isinstance(entity, Topic):
            raise AmqpError(ErrorCondition.NOT_FOUND, f"{name!r} is no topic")
        return entity

    def _find_rules(self, path: str) -> RuleSet:
        entity = self._find(path)
        if not isinstance(entity, Queue) or entity.rules is None:
            raise AmqpError(ErrorCondition.NOT_FOUND, f"{path!r} is no subscription")
        return entity.rules

    def _describe(self, url: str, name: str) -> Element:
        """The entry of an entity, which goes by its last name in a list."""
        entity = self._find(name)
        title = entity.name.rpartition("/Subscriptions/")[2]
        if isinstance(entity, Topic):
            rules = [one.rules.rules if one.rules else [] for one in entity.subscriptions]
            description = atom.write_topic(entity.config, rules, entity.depth(), entity.size())
        elif isinstance(entity, Queue):
            kind = "Queue" if entity.rules is None else "Subscription"
            depth, host = entity.depth(), urlsplit(url).netloc
            description = atom.write_queue(entity.config, kind, depth, entity.size(), host=host)
        return atom.write_entry(url, title, description)

    def _describe_namespace(self) -> Element:
        info = Element(f"{{{atom.SERVICE_BUS}}}NamespaceInfo")
        started = self._started.isoformat().replace("+00:00", "Z")
        atom.add_values(
            info,
            {
                "CreatedTime": started,
                "MessagingSKU": "Premium",
                "MessagingUnits": 1,
                "ModifiedTime": started,
                "Name": self._name,
                "NamespaceType": "Messaging",
            },
        )
        return info

    def _list(self, request: web.BaseRequest, names: Iterable[str]) -> Element:
        url = f"http://{request.host}"
        return write_page(request, [self._describe(f"{url}/{name}", name) for name in names])


def answer_rules(
    request: web.BaseRequest, url: str, rules: RuleSet, name: str | None, body: bytes
) -> Element | None:
    """The rules of a subscription, or the one of a name."""
    found = {one.name.lower(): one for one in rules.rules}
    if name is None:
        return write_page(request, [write_rule_entry(url, rule) for rule in rules.rules])
    if request.method == "PUT":
        rule = atom.read_rule_description(atom.read_description(body, "RuleDescription"), name)
        if is_update(request):
            rules.remove(name)
        rules.add(rule)
    elif request.method == "DELETE":
        rules.remove(name)
        return None
    elif name.lower() in found:
        rule = found[name.lower()]
    else:
        raise AmqpError(ErrorCondition.NOT_FOUND, f"There is no rule {name!r}")
    return write_rule_entry(url, rule)


def write_rule_entry(url: str, rule: SubscriptionRule) -> Element:
    return atom.write_entry(url, rule.name, atom.write_rule_description(rule))


def write_page(request: web.BaseRequest, entries: list[Element]) -> Element:
    """A page of a list, with the address of the next one if there is more."""
    if request.method != "GET":
        raise AmqpError(ErrorCondition.NOT_ALLOWED, f"A list takes no {request.method}: name one")
    first = int(request.query.get("$skip", 0))
    end = first + min(int(request.query.get("$top", PAGE_MAX)), PAGE_MAX)
    url = f"http://{request.host}{request.path}"
    more = f"{url}?$skip={end}&$top={end - first}" if end < len(entries) else None
    return atom.write_feed(url, entries[first:end], more)


def is_for_websockets(request: web.BaseRequest) -> bool:
    asks_for_upgrade = "upgrade" in request.headers.get("Connection", "").lower()
    return asks_for_upgrade or request.path.rstrip("/").lower() == WEBSOCKET_PATH


def is_update(request: web.BaseRequest) -> bool:
    return request.headers.get("If-Match") == "*"


def write_answer(status: int, answer: Element | None) -> web.Response:
    text = b"" if answer is None else ElementTree.tostring(answer, encoding="utf-8")
    return web.Response(status=status, body=text, content_type="application/xml", charset="utf-8")


def refuse_request(status: int, reason: str) -> web.Response:
    error = Element("Error")
    for name, text in (("Code", str(status)), ("Detail", reason)):
        ElementTree.SubElement(error, name).text = text
    return write_answer(status, error)

"""The AsyncAPI document says what comes by the queue, and each limit is the one that is kept."""

import json
import re
from typing import Any

import azure.functions as func
import pytest
from pydantic import BaseModel

from functions.app import build_app, find_handlers
from functions.http.asyncapi import ATTRIBUTES, HEADERS, REQUIRED, describe_messages
from functions.http.openapi import describe_api
from shared.domain.errors import InvalidMessage
from shared.domain.handler import Context, Handlers
from shared.domain.message import Message, Number
from shared.domain.outbox import AppQueues
from shared.domain.wire import PREFIX, from_properties, to_properties
from tests.world import World

QUEUES = AppQueues("in", "out", "errors")
# What an AsyncAPI 3.0 object of each kind may have, of what is used here, and must have.
FIELDS = {
    "channels": {"address", "messages", "description"},
    "operations": {"action", "channel"},
    "messages": {"name", "summary", "contentType", "headers", "payload"},
}
WHOLE = Message(
    *("m", "s", "t", b"{}", Number("g", 0, 0), "2013-01-01", "answers", "s", "m-0"),
    reminder="r",
    traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01",
)


class NoAddress:
    notice_url = ""


@pytest.fixture(scope="module")
def handlers() -> Handlers:
    return find_handlers("functions.handlers", NoAddress())


def resolve(document: dict[str, Any], reference: str) -> Any:
    found: Any = document
    for name in reference.removeprefix("#/").split("/"):
        found = found[name]
    return found


def test_its_objects_have_the_fields_of_asyncapi_and_every_reference_leads_somewhere(
    handlers: Handlers,
) -> None:
    document = describe_messages(handlers, QUEUES)

    assert document["asyncapi"] == "3.0.0"
    assert document["info"].keys() >= {"title", "version"}
    objects = {**document, "messages": document["components"]["messages"]}
    for kind, fields in FIELDS.items():
        for name, one in objects[kind].items():
            assert {key for key in one if not key.startswith("x-")} <= fields
            assert re.fullmatch(r"[\w.-]+", name, re.ASCII)
    references = re.findall(r'"\$ref": "([^"]+)"', json.dumps(document))
    assert all(resolve(document, one) for one in references)
    ends = {
        name: (one["action"], resolve(document, one["channel"]["$ref"])["address"])
        for name, one in document["operations"].items()
    }
    assert ends == {
        "input": ("receive", "in"),
        "output": ("send", "out"),
        "errors": ("send", "errors"),
    }


def test_the_queue_takes_what_the_http_api_takes_by_the_same_models(handlers: Handlers) -> None:
    document = describe_messages(handlers, QUEUES)
    post = describe_api(handlers)["paths"]["/sessions/{session}/messages"]["post"]
    types = post["requestBody"]["content"]["application/json"]["schema"]["x-types"]

    taken = document["channels"]["input"]["messages"].keys() - {"lockstep.void"}

    assert taken == types.keys()
    for name in taken:
        one = document["components"]["messages"][name]
        assert one["payload"] | {"x-sessions": one["x-sessions"]} == types[name]
        model = resolve(document, one["payload"]["$ref"])
        assert model["title"] == handlers.by_type[name].body.__name__


def test_a_type_that_no_component_can_be_named_by_is_there_under_its_name() -> None:
    class Body(BaseModel):
        n: int = 0

    own = Handlers()

    @own.register("order/placed now", state=Body, body=Body)
    def take(state: Body, body: Body, context: Context) -> Body:
        return state

    document = describe_messages(own, QUEUES)

    (key,) = document["channels"]["input"]["messages"].keys() - {"lockstep.void"}
    assert re.fullmatch(r"[\w.-]+", key, re.ASCII)
    one = resolve(document, document["channels"]["input"]["messages"][key]["$ref"])
    assert one["name"] == "order/placed now"
    said = one["headers"]["allOf"][1]["properties"]
    assert said == {"cloudEvents_type": {"const": "order/placed now"}}


def test_the_attributes_are_those_on_the_wire() -> None:
    schema = describe_messages(Handlers(), QUEUES)["components"]["schemas"][ATTRIBUTES]

    assert schema["properties"].keys() == to_properties(WHOLE).keys()
    given = to_properties(Message("m", "s", "t", b"{}"))
    assert from_properties({name: given[name] for name in schema["required"]}, b"{}").id == "m"
    for name in REQUIRED:
        with pytest.raises(InvalidMessage):
            from_properties({key: given[key] for key in given if key != PREFIX + name}, b"{}")


@pytest.mark.parametrize(
    ("name", "most"),
    [(name, one["maxLength"]) for name, one in HEADERS.items() if "maxLength" in one],
)
def test_a_text_as_long_as_it_says_is_taken_and_a_longer_one_is_not(name: str, most: int) -> None:
    properties = dict(to_properties(WHOLE))
    # What is no time is refused however long it is.
    start = "2013-01-01T00:00:00." if name == "time" else ""

    taken = from_properties(properties | {PREFIX + name: start.ljust(most, "1")}, b"{}")

    assert taken.body == b"{}"
    with pytest.raises(InvalidMessage):
        from_properties(properties | {PREFIX + name: start.ljust(most + 1, "1")}, b"{}")


@pytest.mark.parametrize(
    ("name", "most"), [(name, one["maximum"]) for name, one in HEADERS.items() if "maximum" in one]
)
def test_a_number_as_high_as_it_says_is_taken_and_a_higher_one_is_not(name: str, most: int) -> None:
    properties = dict(to_properties(WHOLE))

    assert from_properties(properties | {PREFIX + name: most}, b"{}").number is not None
    with pytest.raises(InvalidMessage):
        from_properties(properties | {PREFIX + name: most + 1}, b"{}")


async def test_the_route_names_the_queues_of_the_settings() -> None:
    world = World()
    (route,) = [
        one
        for one in build_app(world.east).get_functions()
        if one.get_function_name() == "asyncapi"
    ]

    response = await route.get_user_function()(func.HttpRequest("GET", "/", body=b""))

    channels = json.loads(response.get_body())["channels"]
    queues = world.east.readiness.delivery.queues
    assert [one["address"] for one in channels.values()] == [
        *(queues.here, queues.outputs, queues.errors)
    ]

"""The OpenAPI and AsyncAPI documents say what there is, and each limit is the one that is kept."""

import json
import re
from collections.abc import Iterator
from typing import Any

import azure.functions as func
import pytest
from pydantic import BaseModel, computed_field

from functions.app import build_app
from functions.http.asyncapi import ATTRIBUTES, HEADERS, REQUIRED, describe_messages
from functions.http.openapi import describe_api
from functions.http.operate import ResolutionBody
from shared.domain.errors import InvalidMessage
from shared.domain.handler import Context, Handlers
from shared.domain.message import Message, Number
from shared.domain.outbox import AppQueues
from shared.domain.resolution import ResolutionAction
from shared.domain.wire import PREFIX, from_properties, to_properties
from shared.engine.handle.find import find_handlers
from tests.asking import ask, document
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


@pytest.fixture(scope="module")
def handlers() -> Handlers:
    class NoAddress:
        notice_url = ""

    return find_handlers("functions.handlers", NoAddress())


class Counted(BaseModel):
    """What is answered."""

    count: int

    @computed_field
    def double(self) -> int:
        """Twice as many."""
        return 2 * self.count


def keep(state: BaseModel, body: BaseModel, context: Context) -> BaseModel:
    return state


def resolve(document: dict[str, Any], reference: str) -> Any:
    found: Any = document
    for name in reference.removeprefix("#/").split("/"):
        found = found[name]
    return found


def post_of(document: dict[str, Any], path: str) -> dict[str, Any]:
    """What a caller may send by a path: the types of messages, by name."""
    operation = document["paths"][path]["post"]
    types: dict[str, Any] = operation["requestBody"]["content"]["application/json"]["schema"]
    return dict(types["x-types"])


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_it_has_every_route_but_the_page_with_its_method_name_and_key(handlers: Handlers) -> None:
    expected = {}
    for one in build_app(World(handlers=handlers).east).get_functions():
        trigger: Any = one.get_trigger()
        if trigger.type == "httpTrigger" and not str(one.get_function_name()).startswith("page"):
            (method,) = trigger.methods
            key = trigger.auth_level is not func.AuthLevel.ANONYMOUS
            route = (f"/{trigger.route}", method.value.lower())
            expected[one.get_function_name()] = (*route, key)

    found = {
        operation["operationId"]: (path, method, bool(operation["security"]))
        for path, method, operation in operations(describe_api(handlers))
    }

    assert found == expected


def test_every_name_in_a_path_is_a_parameter_and_every_reference_leads_somewhere(
    handlers: Handlers,
) -> None:
    document = describe_api(handlers)

    for path, _, operation in operations(document):
        in_path = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
        assert in_path == set(re.findall(r"\{(\w+)\}", path))
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert named == set(document["components"]["schemas"])


def test_an_answer_has_the_schema_of_the_model_that_its_handler_declares() -> None:
    own = Handlers()
    own.register("order.count", body=ResolutionBody, answer=Counted)(keep)
    own.register("order.place", body=ResolutionBody)(keep)

    api = describe_api(own)

    answers = api["paths"]["/sessions/{session}/messages"]["post"]["responses"]["200"]
    schema = answers["content"]["application/json"]["schema"]["properties"]["answer"]
    assert schema["x-types"].keys() == {"order.count"}
    assert schema["anyOf"] == [schema["x-types"]["order.count"], {"type": "null"}]
    model = resolve(api, schema["x-types"]["order.count"]["$ref"])
    # What a model computes is answered, too.
    assert model["properties"].keys() == {"count", "double"}


def test_a_message_has_the_schema_of_its_model_and_the_sessions_it_is_for(
    handlers: Handlers,
) -> None:
    api = describe_api(handlers)
    types = post_of(api, "/sessions/{session}/messages")
    parameters = api["paths"]["/sessions/{session}/messages"]["post"]["parameters"]

    given = next(one for one in parameters if one["name"] == "type")
    assert given["schema"]["enum"] == sorted(types)
    assert types["stock.receive"]["x-sessions"] == ["stock:*"]
    assert types["flight.status"]["x-sessions"] == ["*"]
    for name, one in types.items():
        fields = handlers.by_type[name].body.model_fields
        found = resolve(api, one["$ref"])
        assert found["properties"].keys() == fields.keys()
        assert found.get("required", []) == [f for f, info in fields.items() if info.is_required()]
    assert post_of(api, "/sagas/{key}").keys() == {"order.place"}
    assert "order.place" not in types


def test_a_decision_has_the_schema_of_what_the_route_takes(handlers: Handlers) -> None:
    schema = describe_api(handlers)["components"]["schemas"]

    assert schema["ResolutionBody"]["properties"].keys() == ResolutionBody.model_fields.keys()
    assert schema["ResolutionAction"]["enum"] == [action.value for action in ResolutionAction]


def test_two_models_of_one_name_are_told_apart() -> None:
    handlers = Handlers()
    for name in ("euros", "pounds"):
        members = {"__annotations__": {name: int}, "__module__": name}
        handlers.register(name, body=type("Amount", (BaseModel,), members))(keep)

    api = describe_api(handlers)

    for name, one in post_of(api, "/sessions/{session}/messages").items():
        assert list(resolve(api, one["$ref"])["properties"]) == [name]
    # Without kinds of sagas there are none.
    assert [path for path in api["paths"] if "saga" in path] == []


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
    types = post_of(describe_api(handlers), "/sessions/{session}/messages")

    taken = document["channels"]["input"]["messages"].keys() - {"lockstep.void"}

    assert taken == types.keys()
    for name in taken:
        one = document["components"]["messages"][name]
        assert one["payload"] | {"x-sessions": one["x-sessions"]} == types[name]
        model = resolve(document, one["payload"]["$ref"])
        assert model["title"] == handlers.by_type[name].body.__name__


def test_a_type_that_no_component_can_be_named_by_is_there_under_its_name() -> None:
    own = Handlers()
    own.register("order/placed now", body=ResolutionBody)(keep)

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
    ("name", "limit"),
    [
        (name, limit)
        for name, one in HEADERS.items()
        for limit in ("maxLength", "maximum")
        if limit in one
    ],
)
def test_what_is_at_a_limit_is_taken_and_what_is_beyond_is_not(name: str, limit: str) -> None:
    most = HEADERS[name][limit]
    # What is no time is refused however long it is.
    start = "2013-01-01T00:00:00." if name == "time" else ""
    at, beyond = (
        (most, most + 1)
        if limit == "maximum"
        else (start.ljust(most, "1"), start.ljust(most + 1, "1"))
    )
    properties = dict(to_properties(WHOLE))

    assert from_properties(properties | {PREFIX + name: at}, b"{}").number is not None
    with pytest.raises(InvalidMessage):
        from_properties(properties | {PREFIX + name: beyond}, b"{}")


async def test_the_route_names_the_queues_of_the_settings(world: World) -> None:
    routes = {one.get_function_name(): one for one in build_app(world.east).get_functions()}

    response = await routes["asyncapi"].get_user_function()(ask(method="GET"))

    queues = world.east.readiness.delivery.queues
    assert [one["address"] for one in document(response)["channels"].values()] == [
        *(queues.here, queues.outputs, queues.errors)
    ]

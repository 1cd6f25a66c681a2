"""The OpenAPI document says which routes there are, and what each message's body is."""

import json
import re
from collections.abc import Iterator
from typing import Any

import azure.functions as func
import pytest
from pydantic import BaseModel

from functions.app import build_app, find_handlers
from functions.http.openapi import describe_api
from functions.http.operate import ResolutionBody
from shared.domain.handler import Context, Handlers
from shared.engine.operate.resolve import ResolutionAction
from tests.world import World


@pytest.fixture(scope="module")
def handlers() -> Handlers:
    class NoAddress:
        notice_url = ""

    return find_handlers("functions.handlers", NoAddress())


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_it_has_every_route_but_the_page_with_its_method_name_and_key(handlers: Handlers) -> None:
    world = World(handlers=handlers)
    functions = build_app(world.east).get_functions()
    expected = {}
    for one in functions:
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


def test_a_message_has_the_schema_of_its_model_and_the_sessions_it_is_for(
    handlers: Handlers,
) -> None:
    document = describe_api(handlers)
    post = document["paths"]["/sessions/{session}/messages"]["post"]
    types = post["requestBody"]["content"]["application/json"]["schema"]["x-types"]
    given = next(one for one in post["parameters"] if one["name"] == "type")

    assert given["schema"]["enum"] == sorted(types)
    assert "order.place" not in types
    assert types["stock.receive"]["x-sessions"] == ["stock:*"]
    assert types["flight.status"]["x-sessions"] == ["*"]
    schemas = document["components"]["schemas"]
    for name, one in types.items():
        model = handlers.by_type[name].body
        found = schemas[one["$ref"].rpartition("/")[2]]
        assert set(found["properties"]) == set(model.model_fields)
        assert found.get("required", []) == [
            field for field, info in model.model_fields.items() if info.is_required()
        ]
    sagas = document["paths"]["/sagas/{key}"]["post"]
    assert set(sagas["requestBody"]["content"]["application/json"]["schema"]["x-types"]) == {
        "order.place"
    }


def test_a_decision_has_the_schema_of_what_the_route_takes(handlers: Handlers) -> None:
    schema = describe_api(handlers)["components"]["schemas"]

    assert set(schema["ResolutionBody"]["properties"]) == set(ResolutionBody.model_fields)
    assert schema["ResolutionAction"]["enum"] == [action.value for action in ResolutionAction]


def test_two_models_of_one_name_are_told_apart() -> None:
    def model(name: str) -> type[BaseModel]:
        return type("Amount", (BaseModel,), {"__annotations__": {name: int}, "__module__": name})

    def keep(state: BaseModel, body: BaseModel, context: Context) -> BaseModel:
        return state

    handlers = Handlers()
    for name in ("euros", "pounds"):
        handlers.register(name, body=model(name))(keep)

    document = describe_api(handlers)

    types = document["paths"]["/sessions/{session}/messages"]["post"]["requestBody"]["content"]
    found = types["application/json"]["schema"]["x-types"]
    for name in ("euros", "pounds"):
        schema = document["components"]["schemas"][found[name]["$ref"].rpartition("/")[2]]
        assert list(schema["properties"]) == [name]
    # Without kinds of sagas none can be started.
    assert "post" not in document["paths"]["/sagas/{key}"]

"""Responses as the worker library encodes them, turned into HTTP."""

import azure.functions as func
import pytest
from azure.functions.http import HttpResponseConverter
from azure_functions_runtime.bindings.datumdef import datum_as_proto

from local.functions_host import protos
from local.functions_host.protos import TypedData
from local.functions_host.triggers.http import response_of


def encoded(answer: func.HttpResponse) -> TypedData:
    """What the worker hands over for a function's response."""
    datum = HttpResponseConverter.encode(answer, expected_type=None)
    value: TypedData = datum_as_proto(datum, protos)
    return value


def test_status_headers_and_body_pass_through() -> None:
    answer = func.HttpResponse(b"\x00\xff", status_code=409, headers={"x-why": "taken"})

    response = response_of(encoded(answer))

    assert (response.status, response.body) == (409, b"\x00\xff")
    assert response.headers["x-why"] == "taken"


def test_cookies_keep_their_attributes() -> None:
    answer = func.HttpResponse("")
    answer.headers.add("Set-Cookie", "a=1; Path=/x; Max-Age=60; Secure; HttpOnly; SameSite=Strict")
    answer.headers.add("Set-Cookie", "b=2")

    response = response_of(encoded(answer))

    first, second = response.cookies["a"], response.cookies["b"]
    assert (first.value, first["path"], first["max-age"]) == ("1", "/x", "60")
    assert (first["secure"], first["httponly"], first["samesite"]) == (True, True, "Strict")
    assert (second.value, second["secure"]) == ("2", False)


@pytest.mark.parametrize(("value", "body"), [(TypedData(string="hello"), b"hello"), (None, None)])
def test_a_text_is_a_whole_response_and_nothing_an_empty_one(
    value: TypedData | None, body: bytes | None
) -> None:
    response = response_of(value)

    assert (response.status, response.body) == (200, body)

"""Route templates, translated or refused."""

import re

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from local.functions_host.triggers.http import parameters, routes

LITERAL = re.compile(r"\{literal__\d+:\(\?i:(\w+)\)\}")


def plain(path: str) -> str:
    """An aiohttp path with its literals as they are."""
    return LITERAL.sub(r"\1", path)


def paths(template: str, prefix: str = "api") -> list[str]:
    """The aiohttp paths of a template, with plain literals."""
    return [plain(route.path) for route in routes(prefix, template, ("GET",))]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("health", ["/api/health"]),
        ("sessions/{session}", ["/api/sessions/{session}"]),
        ("items/{id:int}", [r"/api/items/{id:-?\d+}"]),
        ("pages/{*rest}", ["/api/pages/{rest__rest:.*}"]),
        ("faults/{session?}", ["/api/faults/{session}", "/api/faults"]),
    ],
)
def test_a_template_becomes_paths(template: str, expected: list[str]) -> None:
    assert paths(template) == expected


def test_literals_of_another_case_are_the_same_path() -> None:
    (one,), (other,) = routes("api", "Items/{id}", ()), routes("API", "items/{id}", ())

    assert one == other


def test_literals_are_no_parameters() -> None:
    assert parameters({"literal__0": "api", "id": "7"}) == {"id": "7"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/items/a%20b", {"id": "a b"}),
        ("/items/a%25b", {"id": "a%b"}),
        ("/items/a%2Fb", {"id": "a%2Fb"}),
        ("/items/a%252Fb", {"id": "a%2Fb"}),
        ("/pages/a/b%20c", {"rest": "a/b c"}),
    ],
)
async def test_a_segment_is_decoded_once_but_for_its_slashes(
    path: str, expected: dict[str, str]
) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(parameters(request.match_info))

    app = web.Application()
    for template in ("items/{id}", "pages/{*rest}"):
        (route,) = routes("", template, ("GET",))
        app.router.add_get(route.path, answer)
    async with TestClient[web.Request, web.Application](TestServer(app)) as client:
        asked = await client.get(URL(path, encoded=True))

        assert await asked.json() == expected


def test_an_empty_prefix_leaves_the_template_alone() -> None:
    assert paths("health", prefix="") == ["/health"]


def test_literals_are_matched_before_constrained_and_free_parameters() -> None:
    templates = ["items/{id}", "items/{id:int}", "items/special", "items/{*rest}"]

    ordered = sorted(route for template in templates for route in routes("", template, ()))

    assert [plain(route.path) for route in ordered] == [
        "/items/special",
        r"/items/{id:-?\d+}",
        "/items/{id}",
        "/items/{rest__rest:.*}",
    ]


@pytest.mark.parametrize(
    "template", ["a/{b?}/c", "a/{b:range(1,2)}", "a/{b:double}", "a/x{b}", "a/{b=1}", "a/}"]
)
def test_a_notation_that_is_not_honoured_is_an_error(template: str) -> None:
    with pytest.raises(ValueError, match="honoured"):
        paths(template)

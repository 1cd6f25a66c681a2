"""Route templates, translated or refused."""

import re

import pytest

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
        ("pages/{*rest}", ["/api/pages/{rest:.*}"]),
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


def test_an_empty_prefix_leaves_the_template_alone() -> None:
    assert paths("health", prefix="") == ["/health"]


def test_literals_are_matched_before_constrained_and_free_parameters() -> None:
    templates = ["items/{id}", "items/{id:int}", "items/special", "items/{*rest}"]

    ordered = sorted(route for template in templates for route in routes("", template, ()))

    assert [plain(route.path) for route in ordered] == [
        "/items/special",
        r"/items/{id:-?\d+}",
        "/items/{id}",
        "/items/{rest:.*}",
    ]


@pytest.mark.parametrize(
    "template", ["a/{b?}/c", "a/{b:range(1,2)}", "a/{b:double}", "a/x{b}", "a/{b=1}", "a/}"]
)
def test_a_notation_that_is_not_honoured_is_an_error(template: str) -> None:
    with pytest.raises(ValueError, match="honoured"):
        paths(template)

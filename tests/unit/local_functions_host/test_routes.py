"""Route templates, translated or refused."""

import pytest

from local.functions_host.triggers.route import routes


def paths(template: str, prefix: str = "api") -> list[str]:
    """The aiohttp paths of a template."""
    return [route.path for route in routes(prefix, template, ("GET",))]


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


def test_an_empty_prefix_leaves_the_template_alone() -> None:
    assert paths("health", prefix="") == ["/health"]


def test_literals_are_matched_before_constrained_and_free_parameters() -> None:
    templates = ["items/{id}", "items/{id:int}", "items/special", "items/{*rest}"]

    ordered = sorted(route for template in templates for route in routes("", template, ()))

    assert [route.path for route in ordered] == [
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

"""Route templates of the HTTP trigger, translated for aiohttp.

Honoured: literals, which match in any case, `{name}`, `{name?}` at the end, `{*rest}`, and the
constraints below.
"""

import re
from collections.abc import Mapping

from local.functions_host.web import Route

CONSTRAINTS = {
    "int": r"-?\d+",
    "long": r"-?\d+",
    "alpha": r"[A-Za-z]+",
    "bool": r"[Tt]rue|[Ff]alse",
    "guid": r"[0-9A-Fa-f]{8}(?:-?[0-9A-Fa-f]{4}){3}-?[0-9A-Fa-f]{12}",
}
PARAMETER = re.compile(
    r"\{(?P<rest>\*)?(?P<name>[A-Za-z_]\w*)(?::(?P<constraint>\w+))?(?P<optional>\?)?\}"
)
ALL_METHODS = ("*",)
LITERAL = "literal__"  # begins the names of what aiohttp takes for parameters and is none


def routes(prefix: str, template: str, methods: tuple[str, ...]) -> list[Route]:
    """Translate one template; an optional last parameter gives two routes.

    A notation that is not honoured raises ValueError.
    """
    segments = [segment for segment in f"{prefix}/{template}".split("/") if segment]
    optional = bool(segments) and segments[-1].endswith("?}")
    if any("?}" in segment for segment in segments[:-1]):
        raise ValueError("an optional parameter is honoured at the end only")
    translated = [translate(segment, place) for place, segment in enumerate(segments)]
    variants = [translated, translated[:-1]] if optional else [translated]
    return [route(variant, methods or ALL_METHODS) for variant in variants]


def route(segments: list[tuple[int, str]], methods: tuple[str, ...]) -> Route:
    """Join translated segments."""
    path = "/" + "/".join(text for _, text in segments)
    return Route(tuple(rank for rank, _ in segments), path, methods)


def parameters(found: Mapping[str, str]) -> dict[str, str]:
    """The parameters of the template among those aiohttp found."""
    return {name: value for name, value in found.items() if not name.startswith(LITERAL)}


def translate(segment: str, place: int) -> tuple[int, str]:
    """Return one segment's rank (literal, constrained, free, rest) and its aiohttp notation."""
    if "{" not in segment and "}" not in segment:
        return 0, f"{{{LITERAL}{place}:(?i:{re.escape(segment.lower())})}}"
    match = PARAMETER.fullmatch(segment)
    if match is None:
        raise ValueError(f"the route segment {segment} is not honoured")
    if match["rest"]:
        return 3, f"{{{match['name']}:.*}}"
    if match["constraint"] is None:
        return 2, f"{{{match['name']}}}"
    if match["constraint"] not in CONSTRAINTS:
        raise ValueError(f"the route constraint {match['constraint']} is not honoured")
    return 1, f"{{{match['name']}:{CONSTRAINTS[match['constraint']]}}}"

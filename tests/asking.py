"""Requests as the host hands them to the functions, and what their answers say."""

import json
from collections.abc import Mapping
from typing import Any

import azure.functions as func


def ask(
    body: bytes | str = b"",
    *,
    method: str = "POST",
    path: str = "",
    headers: Mapping[str, str] | None = None,
    route: Mapping[str, str] | None = None,
    query: Mapping[str, str] | None = None,
) -> func.HttpRequest:
    """A request whose query and path the host has read."""
    return func.HttpRequest(
        method,
        f"http://host/api{path}",
        headers=dict(headers or {}),
        params=dict(query or {}),
        route_params=dict(route or {}),
        body=body.encode() if isinstance(body, str) else body,
    )


def document(response: func.HttpResponse) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(response.get_body())
    return parsed

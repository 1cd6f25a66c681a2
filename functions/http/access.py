"""Every route asks for its right before it does anything."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import azure.functions as func

from functions.http.responses import respond_problem
from shared.domain.access import Authentication, Principal, Right, authenticate, require_right
from shared.domain.errors import LockstepError
from shared.engine.build import Services

type CheckedRoute = Callable[..., Awaitable[func.HttpResponse]]


def add_route(
    bp: func.Blueprint,
    services: Services,
    method: str,
    route: str,
    right: Right,
    add_inputs: Callable[..., Any] = lambda checked: checked,
) -> Callable[[CheckedRoute], Any]:
    """The decorator of an HTTP function that only callers with a right may use.

    The host asks them for a function key, unless tokens alone are asked for. `add_inputs` is the
    decorator of what else the function is given.
    """
    is_keyless = services.authentication is Authentication.ENTRA
    register = bp.route(
        route=route,
        methods=[method],
        auth_level=func.AuthLevel.ANONYMOUS if is_keyless else func.AuthLevel.FUNCTION,
        trigger_arg_name="request",
    )
    check = requires(services, right)
    return lambda function: register(add_inputs(check(function)))


def requires(services: Services, right: Right) -> Callable[[CheckedRoute], CheckedRoute]:
    """The decorator of a route that only callers with a right may use: 401 and 403 for others.

    It stands nearest to the function, so that nothing of the route is done before.
    """

    def decorate(route: CheckedRoute) -> CheckedRoute:
        @wraps(route)
        async def checked(
            request: func.HttpRequest, *arguments: Any, **named: Any
        ) -> func.HttpResponse:
            try:
                require_right(principal_of(services, request), right)
            except LockstepError as error:
                return respond_problem(error)
            return await route(request, *arguments, **named)

        return checked

    return decorate


def principal_of(services: Services, request: func.HttpRequest) -> Principal | None:
    """Return the caller, by a token; see `authenticate`."""
    return authenticate(services.authentication, request.headers)

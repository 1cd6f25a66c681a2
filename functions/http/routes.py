"""The HTTP functions: each is declared where it stands, and asks for its right before all else."""

import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import wraps
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode, urlsplit

import azure.functions as func

from functions.http.requests import HOST_PARAMETERS, refuse_other_sites
from functions.http.responses import respond_problem
from functions.triggers.sagas import with_client
from shared.domain.access import (
    ENTRA,
    PRINCIPAL,
    Authentication,
    Principal,
    Right,
    authenticate,
    require_right,
)
from shared.domain.errors import LockstepError, NotAuthenticated
from shared.engine.build import Services

type Answer = Callable[..., Coroutine[Any, Any, func.HttpResponse]]
type QuerySchemas = Mapping[str, Mapping[str, Any]]

TEXT = {"type": "string"}
REFUSED = {400: "What was asked makes no sense."}
NOTHING: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """One function: its method and path, its right, and what the OpenAPI document says of it."""

    name: str
    method: str
    path: str
    right: Right | None
    summary: str
    answers: Mapping[int, str]
    query: QuerySchemas
    answer: Answer

    def add_to(self, bp: func.Blueprint, services: Services) -> None:
        """Register the function. The host asks for a key, unless tokens alone are asked for."""

        async def respond(request: func.HttpRequest) -> func.HttpResponse:
            return await self.answer(services, request)

        async def respond_with_client(request: func.HttpRequest, client: Any) -> func.HttpResponse:
            return await self.answer(services, request, client)

        takes_client = "client" in inspect.signature(self.answer).parameters
        function: Any = respond_with_client if takes_client else respond
        function.__name__ = self.name
        is_keyless = self.right is None or services.authentication is Authentication.ENTRA
        if self.right is not None:
            function = requires(services, self.right)(function)
        register = bp.route(
            route=self.path,
            methods=[self.method],
            auth_level=func.AuthLevel.ANONYMOUS if is_keyless else func.AuthLevel.FUNCTION,
            trigger_arg_name="request",
        )
        register(with_client(bp)(function) if takes_client else function)


def answer_problems(answer: Answer) -> Answer:
    """The same, but that an error is answered as problem details."""

    @wraps(answer)
    async def answer_all(*arguments: Any) -> func.HttpResponse:
        try:
            return await answer(*arguments)
        except LockstepError as error:
            return respond_problem(error)

    return answer_all


class HttpRoutes:
    """The routes of a module. `guard` makes of their answers some that raise no LockstepError."""

    def __init__(self, guard: Callable[[Answer], Answer] = answer_problems) -> None:
        self.guard = guard
        self.declared: list[HttpRoute] = []

    def add(
        self,
        name: str,
        place: str,
        right: Right | None,
        summary: str = "",
        answers: Mapping[int, str] = NOTHING,
        query: QuerySchemas = NOTHING,
    ) -> Callable[[Answer], Answer]:
        """The decorator of `answer(services, request)`, for callers with a right; None is for all.

        With a third parameter, `client`, it gets a client of its region's task hub. `place` is
        method and path; `answers` has a text for each status, `query` a schema for each parameter.
        """
        method, path = place.split()

        def decorate(answer: Answer) -> Answer:
            guarded = self.guard(answer)
            route = HttpRoute(name, method, path, right, summary, answers, query, guarded)
            self.declared.append(route)
            return guarded

        return decorate

    def build(self, services: Services) -> func.Blueprint:
        bp = func.Blueprint()
        for route in self.declared:
            route.add_to(bp, services)
        return bp


def requires(services: Services, right: Right) -> Callable[[Answer], Answer]:
    """The decorator of a route that only callers with a right may use: 401 and 403 for others.

    A browser without a token is sent to sign in, and comes back. It stands nearest to the function,
    so that nothing of the route is done before.
    """

    def decorate(route: Answer) -> Answer:
        @wraps(route)
        async def checked(
            request: func.HttpRequest, *arguments: Any, **named: Any
        ) -> func.HttpResponse:
            try:
                refuse_other_sites(request)
                require_right(principal_of(services, request), right)
            except NotAuthenticated as error:
                return ask_to_sign_in(request) or respond_problem(error)
            except LockstepError as error:
                return respond_problem(error)
            return await route(request, *arguments, **named)

        return checked

    return decorate


def ask_to_sign_in(request: func.HttpRequest) -> func.HttpResponse | None:
    """Send a browser that shows no token to where App Service lets people sign in; None for others.

    One whose token was not believed stays: it would come back with the same one.
    """
    said = request.headers
    is_browser = request.method == "GET" and "text/html" in (said.get("accept") or "")
    if not is_browser or said.get(PRINCIPAL):
        return None
    # A key in the address is nothing for who lets people sign in.
    asked = {name: said for name, said in request.params.items() if name not in HOST_PARAMETERS}
    path = urlsplit(request.url).path + (f"?{urlencode(asked)}" if asked else "")
    place = f"/.auth/login/{ENTRA}?{urlencode({'post_login_redirect_uri': path})}"
    return func.HttpResponse(status_code=302, headers={"Location": place})


def principal_of(services: Services, request: func.HttpRequest) -> Principal | None:
    """Return the caller, by a token; see `authenticate`."""
    return authenticate(services.authentication, request.headers)

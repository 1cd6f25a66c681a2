"""Rights over HTTP: what a token's roles open, and that nobody forges a token or a name."""

import inspect
import json
from base64 import b64encode
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import azure.functions as func
import pytest

from functions.app import build_app
from functions.handlers import orders
from functions.http.operate import carry_out
from functions.http.responses import respond
from functions.http.routes import requires
from functions.page.decisions import answer_form
from functions.page.page import show_faults
from shared.domain.access import Authentication, Right
from shared.engine.build import Services
from shared.engine.handle.limit import HandlerLoops
from shared.settings import AUTH_ENABLED, InvalidSettings, Settings
from shared.wiring import connect
from tests.asking import ask, document
from tests.unit.functions.test_page import asked, fields, form
from tests.unit.shared.test_settings import ENVIRONMENT
from tests.world import World, handlers, message

# What a caller needs for each route; health needs nothing.
RIGHTS = {
    Right.SEND: {"ingest", "start_saga", "tell_saga", "cancel_saga", "page_saga_change"},
    Right.RESOLVE: {
        *(
            "resolve",
            "page_decision",
            "send_again",
            "page_again",
            "dismiss",
            "page_dismiss",
            "page_reports",
        ),
        "decide",
        "cancel_decision",
        "page_decisions_change",
    },
    Right.LOOK: {
        *(
            "status",
            "sessions",
            "session",
            "changes",
            "tail",
            "state",
            "find",
            "follow",
            "faults",
            "errors",
            "show_saga",
            "list_sagas",
        ),
        *("openapi", "asyncapi", "page", "page_faults", "page_regions", "page_sessions"),
        *("page_errors", "page_session", "page_saga", "page_sagas", "page_find", "page_follow"),
        *("causes", "decisions", "page_decisions"),
    },
}


def token(*roles: str, provider: str = "aad", name: str = "ada@example.com") -> dict[str, str]:
    """The header in which App Service hands the claims of a token over."""
    claims = [{"typ": "roles", "val": role} for role in roles]
    claims += [{"typ": "preferred_username", "val": name}, {"typ": "oid", "val": "0ad4"}]
    principal = {"auth_typ": provider, "claims": claims, "name_typ": "name", "role_typ": "roles"}
    return {"x-ms-client-principal": b64encode(json.dumps(principal).encode()).decode()}


def with_tokens(services: Services, authentication: Authentication) -> Services:
    return replace(services, authentication=authentication)


def routes(services: Services) -> dict[str, Any]:
    found: dict[str, Any] = {
        str(one.get_function_name()): one for one in build_app(services).get_functions()
    }
    return {name: one for name, one in found.items() if one.get_trigger().type == "httpTrigger"}


def is_checked(function: Any) -> bool:
    return str(function.__code__.co_qualname).startswith("requires.")


def method_of(one: Any) -> str:
    (method,) = one.get_trigger().methods
    return str(getattr(method, "value", method))


async def call(one: Any, headers: dict[str, str]) -> int:
    """The status of a route's answer; one that was let in may fail, as nothing is there to find."""
    function = one.get_user_function()
    arguments: list[Any] = [ask(headers=headers, method=method_of(one))]
    if "client" in inspect.signature(function).parameters:
        # Below the decorator that makes a client of what the host hands over, and as it calls.
        function = inspect.unwrap(function, stop=is_checked)
        arguments.append(None)
    try:
        answer = await function(*arguments)
    except (AttributeError, KeyError):
        # It was let in, and there is no client, or nothing that it is about.
        return 500
    return int(answer.status_code)


async def test_a_role_opens_its_own_routes_and_no_other() -> None:
    services = with_tokens(World(handlers=orders.handlers).east, Authentication.ENTRA)
    found = routes(services)

    assert {name for names in RIGHTS.values() for name in names} == found.keys() - {"health"}
    for right in Right:
        for name in found.keys() - {"health"}:
            status = await call(found[name], token(right))
            assert (status == 403) is (name not in RIGHTS[right]), (name, right, status)
            assert status != 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-ms-client-principal": "e30="},
        {"x-ms-client-principal": "no base64"},
        {"x-ms-client-principal": b64encode(b'{"auth_typ": "aad", "claims": null}').decode()},
        token(*Right, provider="google"),
        {"x-ms-client-principal-name": "ada@example.com", "x-ms-client-principal-id": "0ad4"},
    ],
    ids=["nothing", "no claims", "no base64", "null", "another provider", "only a name"],
)
async def test_without_a_token_of_entra_id_every_route_but_health_is_401(
    headers: dict[str, str],
) -> None:
    found = routes(with_tokens(World(handlers=orders.handlers).east, Authentication.BOTH))

    statuses = {name: await call(one, headers) for name, one in found.items()}

    assert statuses.pop("health") == 200
    assert set(statuses.values()) == {401}


@pytest.mark.parametrize(
    ("authentication", "level"),
    [
        (Authentication.KEYS, func.AuthLevel.FUNCTION),
        (Authentication.BOTH, func.AuthLevel.FUNCTION),
        (Authentication.ENTRA, func.AuthLevel.ANONYMOUS),
    ],
)
def test_the_host_asks_for_a_key_unless_tokens_alone_are_asked_for(
    authentication: Authentication, level: func.AuthLevel
) -> None:
    found = routes(with_tokens(World(handlers=orders.handlers).east, authentication))

    levels = {one.get_trigger().auth_level for name, one in found.items() if name != "health"}
    assert levels == {level}


ELSEWHERE = {
    "another site": {"sec-fetch-site": "cross-site"},
    "another app of the cloud": {"sec-fetch-site": "same-site"},
    "another page of an old browser": {"origin": "https://evil.example"},
    "no page that has a name": {"origin": "null"},
    "another name of an old browser": {"origin": "https://evil", "x-forwarded-host": "front"},
}
HERE = {
    "this page": {"sec-fetch-site": "same-origin", "origin": "https://front"},
    "no page": {"sec-fetch-site": "none"},
    "this page of an old browser": {"origin": "http://host"},
    "this page behind a front": {"origin": "https://front", "x-forwarded-host": "front"},
    "a program": {},
    "a page that has a token": {"sec-fetch-site": "cross-site", "authorization": "Bearer e30"},
    "a page that has a key": {"origin": "https://a.example", "x-functions-key": "k1"},
}


@pytest.mark.parametrize("authentication", [Authentication.KEYS, Authentication.ENTRA])
@pytest.mark.parametrize("case", [*ELSEWHERE, *HERE])
async def test_no_page_of_another_site_changes_anything(
    case: str, authentication: Authentication
) -> None:
    """A browser adds who signed in to whatever a page asks for, its forms and its JSON."""
    found = routes(with_tokens(World(handlers=orders.handlers).east, authentication))
    headers = token(*Right) | ({**ELSEWHERE, **HERE}[case])

    statuses = {name: await call(one, headers) for name, one in found.items()}

    changing = {name for name, one in found.items() if method_of(one) != "GET"}
    assert changing >= RIGHTS[Right.RESOLVE] | RIGHTS[Right.SEND]
    refused = {name for name, status in statuses.items() if status == 403}
    assert refused == (changing if case in ELSEWHERE else set())


@pytest.mark.parametrize(
    ("case", "headers", "status"),
    [
        ("a browser", {"accept": "text/html,*/*"}, 302),
        ("a program", {"accept": "application/json"}, 401),
        ("a program that says nothing", {}, 401),
        ("a browser whose token is not believed", token(*Right, provider="google"), 401),
        ("a browser with a token", token(Right.LOOK), 200),
        ("a browser whose token has no role", token(), 403),
    ],
)
async def test_a_browser_is_sent_to_sign_in_and_comes_back(
    case: str, headers: dict[str, str], status: int
) -> None:
    page = routes(with_tokens(World().east, Authentication.BOTH))["page_faults"].get_user_function()
    accepts = {"accept": "text/html"} if case.startswith("a browser") else {}
    query = {"kind": "halt", "code": "k1"}

    answer = await page(
        ask(method="GET", path="/operate/faults", query=query, headers=accepts | headers)
    )

    assert answer.status_code == status
    if status == 302:
        place = urlsplit(answer.headers["Location"])
        # A place of this app alone, and without the key.
        assert (place.scheme, place.netloc, place.path) == ("", "", "/.auth/login/aad")
        assert parse_qs(place.query) == {
            "post_login_redirect_uri": ["/api/operate/faults?kind=halt"]
        }


async def test_who_changes_something_is_not_sent_to_sign_in_nor_is_anybody_with_a_key() -> None:
    browser = {"accept": "text/html"}
    found = routes(with_tokens(World().east, Authentication.ENTRA))
    statuses = {name: await call(one, browser) for name, one in found.items()}
    with_keys = {name: await call(one, browser) for name, one in routes(World().east).items()}

    changing = {name for name, one in found.items() if method_of(one) != "GET"}
    assert {name for name, status in statuses.items() if status == 401} == changing
    assert 302 not in with_keys.values()


async def resolve(services: Services, headers: dict[str, str], **said: str) -> str:
    """Who is recorded to have skipped the fault of a session."""
    await services.consumer.consume(message(0, kind="account.burn"))
    body = json.dumps({"action": "skip", "why": "checked", **said})
    request = ask(body, headers=headers, route={"session": "acc-7"})
    answer = document(await carry_out(services, request))
    return str(answer["entry"]["resolution"]["who"])


@pytest.mark.parametrize(
    ("name", "who"),
    [("ada@example.com", "ada@example.com (0ad4)"), ("ada\nlevel", "ada\\nlevel (0ad4)")],
    ids=["a name", "two lines"],
)
async def test_who_decided_is_whom_the_token_names_whatever_the_body_says(
    name: str, who: str
) -> None:
    services = with_tokens(World().east, Authentication.ENTRA)

    assert await resolve(services, token(Right.RESOLVE, name=name), who="Eve") == who


async def test_a_token_that_a_client_forged_is_nobodys_where_keys_alone_are_asked_for() -> None:
    assert await resolve(World().east, token(*Right, name="boss"), who="Eve") == "Eve"

    page = await show_faults(World().east, asked())
    assert b"boss" not in page.get_body()


async def test_the_page_decides_in_the_name_of_the_token() -> None:
    world = World()
    services = with_tokens(world.east, Authentication.ENTRA)
    await services.consumer.consume(message(0, kind="account.burn"))
    signed_in = token(*Right)
    overview = ask(method="GET", path="/operate", headers=signed_in)
    page = (await show_faults(services, overview)).get_body().decode()
    said = fields(page, "skip", who="Eve", confirmed="yes")

    await answer_form(services, form(said, **signed_in))

    assert 'value="ada@example.com (0ad4)" maxlength="128" readonly' in page
    assert world.entries()[-1]["resolution"]["who"] == "ada@example.com (0ad4)"


@pytest.mark.parametrize("said", [{}, {AUTH_ENABLED: "False"}])
def test_tokens_are_not_believed_where_nobody_checks_them(said: dict[str, str]) -> None:
    asked_for = ENVIRONMENT | said | {"LOCKSTEP_AUTHENTICATION": "entra"}

    with pytest.raises(InvalidSettings, match="App Service authentication, which is off"):
        connect(Settings.read(asked_for), handlers)

    services = connect(Settings.read(asked_for | {AUTH_ENABLED: "True"}), handlers)
    assert services.authentication is Authentication.ENTRA
    assert connect(Settings.read(ENVIRONMENT), handlers).authentication is Authentication.KEYS


def test_an_app_runs_what_handlers_do_outside_in_loops_of_their_own() -> None:
    services = connect(Settings.read(ENVIRONMENT), handlers)

    finish = services.consumer.claims.runner.finish
    assert isinstance(getattr(finish, "__self__", None), HandlerLoops)
    assert services.consumer.runner.finish == finish


async def test_nothing_of_a_route_is_done_before_its_right_is_checked() -> None:
    services = with_tokens(World().east, Authentication.ENTRA)
    done: list[str] = []

    @requires(services, Right.SEND)
    async def route(request: func.HttpRequest) -> func.HttpResponse:
        done.append("it")
        return respond({})

    assert (await route(request=ask(headers=token(Right.LOOK)))).status_code == 403
    assert done == []

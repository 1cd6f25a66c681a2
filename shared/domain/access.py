"""The callers over HTTP and their rights: apart from each other, from a token of Entra ID.

App Service authentication checks the token before the app, and hands its claims over in a header.
It takes that header away from what clients send, but only where it is switched on: elsewhere
anybody can write it, so it means nothing there.
https://learn.microsoft.com/azure/app-service/configure-authentication-user-identities
"""

import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from shared.domain.errors import NotAllowed, NotAuthenticated
from shared.domain.reports import shorten

PRINCIPAL = "x-ms-client-principal"
# What App Service calls tokens of Entra ID. The claims of others are not ours to believe.
ENTRA = "aad"
ROLE_CLAIMS = frozenset({"roles", "http://schemas.microsoft.com/ws/2008/06/identity/claims/role"})
NAME_CLAIMS = (
    "preferred_username",
    "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/upn",
    "name",
    "azp",
    "appid",
)
ID_CLAIMS = ("http://schemas.microsoft.com/identity/claims/objectidentifier", "oid")
NAME_CHARACTERS_MAX = 80
ID_CHARACTERS_MAX = 40


class Authentication(StrEnum):
    """The kind of proof that a caller over HTTP shows."""

    KEYS = "keys"  # a function key, which the host checks
    ENTRA = "entra"  # a token with a role for each right
    BOTH = "both"  # both of them


class Right(StrEnum):
    """A right of a caller, by the name of its app role."""

    SEND = "Lockstep.Send"
    LOOK = "Lockstep.Look"
    RESOLVE = "Lockstep.Resolve"


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller with a token that was checked. `name` is for people, and holds the object id."""

    name: str
    roles: frozenset[str]


def authenticate(authentication: Authentication, headers: Mapping[str, str]) -> Principal | None:
    """Return the caller; None where keys alone are asked for, whatever the headers say.

    Raises NotAuthenticated for a request without a token of Entra ID.
    """
    if authentication is Authentication.KEYS:
        return None
    return read_principal(headers.get(PRINCIPAL) or "")


def require_right(principal: Principal | None, right: Right) -> None:
    """Raise NotAllowed for a caller without a right; whoever shows a key alone has all of them."""
    if principal is not None and right not in principal.roles:
        raise NotAllowed(f"{principal.name} has not the role {right}")


def read_principal(header: str) -> Principal:
    """The claims that App Service handed over; raises NotAuthenticated."""
    try:
        said = json.loads(b64decode(header, validate=True))
        claims = [(str(one["typ"]), str(one["val"])) for one in said["claims"]]
        provider, role_type = said["auth_typ"], said.get("role_typ")
    except (ValueError, TypeError, KeyError, RecursionError):
        raise NotAuthenticated("a token of Entra ID is needed") from None
    if provider != ENTRA:
        raise NotAuthenticated("a token of Entra ID is needed, not of another provider")
    found = dict(reversed(claims))
    name = next((found[one] for one in NAME_CLAIMS if found.get(one)), "")
    known = next((found[one] for one in ID_CLAIMS if found.get(one)), "")
    if not known:
        raise NotAuthenticated("the token names no object id")
    roles = {value for kind, value in claims if kind == role_type or kind in ROLE_CLAIMS}
    shown = shorten(f"{name[:NAME_CHARACTERS_MAX]} ({known[:ID_CHARACTERS_MAX]})".strip())
    return Principal(shown, frozenset(roles))

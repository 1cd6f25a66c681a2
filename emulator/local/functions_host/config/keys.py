"""Access keys: of the host, of its extensions, and of single functions.

The platform keeps them as secrets of the names below; here these are names of app settings. Without
them there is the master key alone, which opens everything.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

# The master key where none is set. It is no secret: the host listens on loopback only, and checks
# keys so that a caller without one fails here as it would in the cloud.
DEVELOPMENT_KEY = "lockstep-local"

MASTER = "host.master"
HOST_PREFIX = "host.function."
FUNCTION_PREFIX = "functions."
SYSTEM_PREFIX = "host.systemKey."


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a host; `functions` and `extensions` are by name, in lower case."""

    master: str
    host: frozenset[str]
    functions: Mapping[str, frozenset[str]]
    extensions: Mapping[str, str]

    @classmethod
    def read(cls, settings: Mapping[str, str]) -> "Keys":
        host: set[str] = set()
        functions: dict[str, frozenset[str]] = {}
        extensions: dict[str, str] = {}
        for name, value in settings.items():
            if not value:
                continue
            if name.startswith(HOST_PREFIX):
                host.add(value)
            elif name.startswith(SYSTEM_PREFIX):
                extensions[name.removeprefix(SYSTEM_PREFIX).lower()] = value
            elif name.startswith(FUNCTION_PREFIX):
                function, _, key = name.removeprefix(FUNCTION_PREFIX).lower().partition(".")
                if key:
                    functions[function] = functions.get(function, frozenset()) | {value}
        master = settings.get(MASTER) or DEVELOPMENT_KEY
        return cls(master, frozenset(host), functions, extensions)

    def open_function(self, shown: str | None, function: str) -> bool:
        """Return whether a key may call a function whose level is `function`."""
        own = self.functions.get(function.lower(), frozenset())
        return shown == self.master or shown in self.host or shown in own

    def open_admin(self, shown: str | None) -> bool:
        """Return whether a key may call the admin endpoints, and functions of the level `admin`."""
        return shown == self.master

    def open_extension(self, shown: str | None, extension: str) -> bool:
        return shown in (self.master, self.of_extension(extension))

    def of_extension(self, extension: str) -> str:
        """The key an extension hands to its callers; without one of its own, the master key."""
        return self.extensions.get(extension.lower(), self.master)

    def is_known(self, shown: str | None) -> bool:
        """Return whether a key opens anything on this host, functions' own keys left aside."""
        return shown in {self.master, *self.host, *self.extensions.values()}


def key_of(request: web.Request) -> str | None:
    """The key a caller shows: in the header or, if there is no such header, in the query."""
    return request.headers.get("x-functions-key", request.query.get("code"))

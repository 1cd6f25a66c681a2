"""The handlers of a package: each of its modules has some, and there is no list to edit."""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from shared.domain.handler import Handlers


def find_handlers(package: str, settings: Any = None) -> Handlers:
    """The handlers of every module of a package whose name does not begin with an underscore.

    A module has `handlers`, or, where they need a client, a function `connect_handlers` that makes
    them from the app's settings. Raises ValueError, which names the module, where it has neither,
    and for a message type that two modules handle; an import that fails is raised as it is.
    """
    whole = Handlers()
    for found in sorted(iter_modules(import_module(package).__path__), key=lambda one: one.name):
        if found.name.startswith("_"):
            continue
        module = import_module(f"{package}.{found.name}")
        connect = getattr(module, "connect_handlers", None)
        own = connect(settings) if connect else getattr(module, "handlers", None)
        if not isinstance(own, Handlers):
            raise ValueError(
                f"{module.__name__} has no `handlers`, and no `connect_handlers` that makes them:"
                " begin the name of a module that handles nothing with an underscore"
            )
        try:
            for handler in own.by_type.values():
                whole.add(handler)
        except ValueError as error:
            raise ValueError(f"{module.__name__}: {error}") from None
    return whole

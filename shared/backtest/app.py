"""The handlers of an app's folder, for a run of its code outside of an app."""

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from shared.domain.handler import Handlers
from shared.engine.handle.find import find_handlers
from shared.engine.handle.raised import describe_error
from shared.settings import InvalidSettings, Settings

# Of the folders that may hold an app's modules of handlers, one is there.
PACKAGES = ("functions.handlers", "handlers")
# Where the environment has no settings of an app: nothing is ever called by these.
NOWHERE = {
    "LOCKSTEP_REGION": "here",
    "LOCKSTEP_REGIONS": "here",
    "ServiceBus_here": "Endpoint=sb://nowhere/",
    "Cosmos": "AccountEndpoint=http://nowhere/;AccountKey=bm90aGluZw==;",
}


class AppUnusable(ValueError):
    """The folder is no app, or its handlers cannot be had; the text says why."""


def package_in(folder: Path) -> str:
    """The name of the package of an app's handlers; raises AppUnusable."""
    if not (folder / "function_app.py").is_file():
        raise AppUnusable(f"{folder} is no app: there is no function_app.py in it")
    for name in PACKAGES:
        if (folder / name.replace(".", "/") / "__init__.py").is_file():
            return name
    raise AppUnusable(f"{folder} has no folder of handlers with an __init__.py")


def load_app(folder: Path) -> Handlers:
    """The handlers of an app, imported from its folder, whatever was imported by their names.

    Modules that make their handlers of settings get those of the environment, and defaults for
    what is not set there. Raises AppUnusable.
    """
    name, folder = package_in(folder), folder.resolve()
    for loaded in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
        del sys.modules[loaded]
    if name == PACKAGES[1] and str(folder) not in sys.path:
        # What else the app has is beside its handlers; a checkout of Lockstep is on the path.
        sys.path.insert(0, str(folder))
    place = folder / name.replace(".", "/")
    found = spec_from_file_location(
        name, place / "__init__.py", submodule_search_locations=[str(place)]
    )
    try:
        settings = Settings.read(NOWHERE | dict(os.environ))
        if found is None or found.loader is None:
            raise AppUnusable(f"{place} cannot be imported")
        package = module_from_spec(found)
        sys.modules[name] = package
        found.loader.exec_module(package)
        return find_handlers(name, settings)
    except InvalidSettings as error:
        raise AppUnusable(f"the app settings of the environment: {error}") from None
    except AppUnusable:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise AppUnusable(f"the handlers of {folder}: {describe_error(error)}") from error

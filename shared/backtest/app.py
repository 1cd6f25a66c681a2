"""The handlers of an app's folder, for a run of its code outside of an app."""

import os
import sys
from collections.abc import Mapping
from importlib import invalidate_caches
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from shared.domain.handler import Handlers
from shared.engine.handle.find import find_handlers
from shared.engine.handle.raised import describe_error
from shared.settings import SERVICE_BUS_PREFIX, InvalidSettings, Settings

# Of the folders that may hold an app's modules of handlers, one is there.
PACKAGES = ("functions.handlers", "handlers")
# An app may make its handlers of its settings. Whoever only runs these connects nowhere.
NOWHERE = {"LOCKSTEP_REGIONS": "none", "Cosmos": "none"}


class AppUnusable(ValueError):
    """The folder is no app, or its handlers cannot be had; the text says why."""


def package_in(folder: Path) -> str:
    """The name of the package of an app's handlers; raises AppUnusable."""
    if not (folder / "function_app.py").is_file():
        raise AppUnusable(f"{folder} is no app: there is no function_app.py in it")
    for name in PACKAGES:
        if (folder / name.replace(".", "/")).is_dir():
            return name
    raise AppUnusable(f"{folder} is no app: there is no folder of handlers in it")


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
    found = ModuleSpec(name, None, is_package=True)
    if (place / "__init__.py").is_file():
        found = spec_from_file_location(name, place / "__init__.py") or found
    found.submodule_search_locations = [str(place)]
    invalidate_caches()
    try:
        settings = read_unconnected(os.environ)
        sys.modules[name] = module_from_spec(found)
        if found.loader is not None:
            found.loader.exec_module(sys.modules[name])
        return find_handlers(name, settings)
    except InvalidSettings as error:
        raise AppUnusable(f"the app settings of the environment: {error}") from None
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise AppUnusable(
            f"the handlers of {folder} cannot be loaded: {describe_error(error)}"
        ) from error


def read_unconnected(environment: Mapping[str, str]) -> Settings:
    """The app settings of an environment, with defaults for what is not there, connections too.

    Raises InvalidSettings for a value that cannot be used.
    """
    values = NOWHERE | dict(environment)
    regions = [name.strip() for name in values["LOCKSTEP_REGIONS"].split(",")]
    unset = {f"{SERVICE_BUS_PREFIX}{region}": "none" for region in regions}
    return Settings.read({"LOCKSTEP_REGION": regions[0]} | unset | values)

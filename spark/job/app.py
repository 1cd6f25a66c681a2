"""The handlers of an app, as its function_app.py finds them in the app's folder."""

import sys
from importlib import import_module, invalidate_caches
from pathlib import Path

from shared.domain.handler import Handlers
from shared.settings import InvalidSettings, Settings
from spark.job.failures import JobRefused
from spark.job.settings import read_app_settings

# Handlers may be made from the app's settings. Whoever only asks for their types connects nowhere.
UNCONNECTED = {"LOCKSTEP_REGIONS": "none", "ServiceBus_none": "none", "Cosmos": "none"}


def find_app(folder: str | None) -> Path | None:
    """The folder of an app, absolute; without a name it is this one, or None if it holds no app.

    Raises JobRefused for a folder that is named and holds no app.
    """
    app = Path(folder or ".").resolve()
    if (app / "function_app.py").is_file():
        return app
    if folder is None:
        return None
    raise JobRefused(f"{folder} is no app: there is no function_app.py in it")


def load_handlers(app: Path) -> Handlers:
    """The handlers of the modules in `functions/handlers`, or else in `handlers`, of an app.

    They are imported into this process, and get the app settings of the environment. Raises
    JobRefused, which says what the app's modules, or their import, have raised, or that those of
    another app are imported already.
    """
    package = "functions.handlers" if (app / "functions/handlers").is_dir() else "handlers"
    try:
        settings = Settings.read(read_app_settings({}))
    except InvalidSettings:
        settings = Settings.read(read_app_settings(UNCONNECTED))
    sys.path.insert(0, str(app))
    invalidate_caches()
    try:
        # What a cluster gets of Lockstep has no `lockstep`: it takes an installed one.
        found: Handlers = import_module("lockstep").find_handlers(package, settings)
    except (Exception, SystemExit) as error:  # An app may raise anything.
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise JobRefused(f"the handlers of {app} cannot be loaded: {why}") from None
    place = Path(next(iter(sys.modules[package].__path__)))
    if not place.resolve().is_relative_to(app):
        raise JobRefused(
            f"the handlers of {place} are loaded already: start anew for those of {app}"
        )
    return found

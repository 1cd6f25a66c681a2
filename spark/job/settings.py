"""The app settings of a job: from the environment, and from what is given over it.

Spark turns the names of options into lower case; the names of app settings get their case back.
"""

import os
from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import cast

from pyspark.sql.datasource import DataSource

from shared.settings import SERVICE_BUS_PREFIX, SETTINGS

REGIONS, REGION = "LOCKSTEP_REGIONS", "LOCKSTEP_REGION"
IDENTITY_SUFFIXES = ("", "__accountEndpoint", "__fullyQualifiedNamespace", "__clientId")


class OptionRefused(ValueError):
    """An option is unknown, or its value cannot be used."""


def read_app_settings(
    options: Mapping[str, str], beside: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The app's settings: this process's environment, overridden by `beside`, and by options.

    A job runs in no region; without LOCKSTEP_REGION it publishes as the first of LOCKSTEP_REGIONS.
    """
    given = {name.lower(): value for name, value in options.items()}
    defaults = ChainMap(dict(beside or {}), os.environ)
    found = {REGIONS: given.get(REGIONS.lower(), defaults.get(REGIONS, ""))}
    for name in list_setting_names(found):
        value = given.get(name.lower(), defaults.get(name))
        if value is not None:
            found[name] = value
    found.setdefault(REGION, found[REGIONS].partition(",")[0].strip())
    return found


def with_settings[Source: DataSource](
    source: type[Source], settings: Mapping[str, str] | None = None, *, name: str | None = None
) -> type[Source]:
    """A data source that knows the app settings of this moment, for `spark.dataSource.register`.

    They are those in the environment, overridden by `settings`. Spark's workers know only the
    environment in which Spark was started, so what a notebook sets later must come this way. The
    settings are part of the class and no options, which Spark may show. An option of a read or a
    write counts more than they do.
    """
    members: dict[str, object] = {"settings": read_app_settings(settings or {})}
    if name is not None:
        members["name"] = classmethod(lambda _: name)
    return cast("type[Source]", type(source.__name__, (source,), members))


def list_setting_names(settings: Mapping[str, str]) -> Iterator[str]:
    regions = [region.strip() for region in settings[REGIONS].split(",") if region.strip()]
    yield from (setting.name for setting in SETTINGS if setting.name != "Cosmos")
    for connection in ("Cosmos", *(SERVICE_BUS_PREFIX + region for region in regions)):
        yield from (connection + suffix for suffix in IDENTITY_SUFFIXES)

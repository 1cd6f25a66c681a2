"""What `df.write.format("lockstep")` can be told, beside what the driver's environment says.

Spark lower-cases the names of options; the names of app settings are given their case back.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shared.domain.message import OWNER_LEVEL_MAX
from shared.settings import SERVICE_BUS_PREFIX, SETTINGS, Settings
from spark.patience import PATIENCE_DEFAULT_SECONDS
from spark.progress import ADDRESS

REGIONS, REGION = "LOCKSTEP_REGIONS", "LOCKSTEP_REGION"
IDENTITY_SUFFIXES = ("", "__accountEndpoint", "__fullyQualifiedNamespace", "__clientId")
ROWS_MAX_DEFAULT = 500
OWN = {"rate", "partitions", "batch", "summary", "owner_level", "gaps", "patience", "progress"}
# What Spark itself adds for a stream.
SPARKS = {"checkpointlocation", "path"}
GAPS = ("refuse", "allow")


class OptionRefused(ValueError):
    """An option is unknown, or its value cannot be used."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of one write, checked.

    `rate` is messages per second over all tasks, None for no limit; it is shared evenly between the
    `partitions`, as tasks cannot see how many there are. `batch` is how many rows a task holds
    before it sends them. `summary` is a file on the driver that gets the counts. `owner_level`
    fences writers of the same group with a lower one. `gaps` allows numbers to skip, as in a part
    of what was sent before; what follows a gap waits until the gap is filled. `patience` is how
    many seconds an operation is repeated while no region takes it, before the task fails.
    `progress` is an Ear's address, for tasks to tell how far they are; without it they say so on
    their stderr.
    """

    settings: Mapping[str, str]
    rate: float | None = None
    partitions: int | None = None
    batch: int = ROWS_MAX_DEFAULT
    summary: str | None = None
    owner_level: int = 0
    gaps: bool = False
    patience: float = PATIENCE_DEFAULT_SECONDS
    progress: str | None = None

    @classmethod
    def read(cls, options: Mapping[str, str]) -> "WriteOptions":
        """Check the options; raises OptionRefused, or InvalidSettings for the app settings."""
        given = {name.lower(): value for name, value in options.items()}
        settings = app_settings(given)
        Settings.read(settings)
        known = {name.lower() for name in setting_names(settings)} | OWN | SPARKS
        if unknown := sorted(given.keys() - known):
            raise OptionRefused(f"unknown options: {', '.join(unknown)}")
        if "rate" in given and "partitions" not in given:
            raise OptionRefused("rate needs partitions: how many tasks share it")
        return cls(
            settings=settings,
            rate=rate(given["rate"]) if "rate" in given else None,
            partitions=count("partitions", given["partitions"]) if "partitions" in given else None,
            batch=count("batch", given.get("batch", str(ROWS_MAX_DEFAULT))),
            summary=given.get("summary"),
            owner_level=level(given.get("owner_level", "0")),
            gaps=choice("gaps", given.get("gaps", GAPS[0]), GAPS) == "allow",
            patience=seconds(given.get("patience", str(PATIENCE_DEFAULT_SECONDS))),
            progress=address(given["progress"]) if "progress" in given else None,
        )

    @property
    def rate_of_a_task(self) -> float | None:
        """Messages per second for one task, or None for no limit."""
        if self.rate is None or self.partitions is None:
            return None
        return self.rate / self.partitions


def app_settings(options: Mapping[str, str]) -> dict[str, str]:
    """The app's settings: the driver's environment, overridden by options.

    A job runs in no region; without LOCKSTEP_REGION it publishes as the first of LOCKSTEP_REGIONS.
    """
    given = {name.lower(): value for name, value in options.items()}
    found = {REGIONS: given.get(REGIONS.lower(), os.environ.get(REGIONS, ""))}
    for name in setting_names(found):
        value = given.get(name.lower(), os.environ.get(name))
        if value is not None:
            found[name] = value
    found.setdefault(REGION, found[REGIONS].partition(",")[0].strip())
    return found


def setting_names(settings: Mapping[str, str]) -> Iterator[str]:
    """Every setting there can be, given the regions."""
    regions = [region.strip() for region in settings[REGIONS].split(",") if region.strip()]
    yield from (setting.name for setting in SETTINGS if setting.name != "Cosmos")
    for connection in ("Cosmos", *(SERVICE_BUS_PREFIX + region for region in regions)):
        yield from (connection + suffix for suffix in IDENTITY_SUFFIXES)


def rate(value: str) -> float:
    """Messages per second; raises OptionRefused."""
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise OptionRefused(f"rate must be a number above zero, not {value!r}")
    return number


def count(name: str, value: str) -> int:
    """A whole number from 1; raises OptionRefused."""
    if not value.isdecimal() or int(value) < 1:
        raise OptionRefused(f"{name} must be a whole number from 1, not {value!r}")
    return int(value)


def seconds(value: str) -> float:
    """A time from zero on; raises OptionRefused."""
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise OptionRefused(f"patience must be seconds from 0 on, not {value!r}")
    return number


def address(value: str) -> str:
    """Where progress is told; raises OptionRefused."""
    if not ADDRESS.fullmatch(value):
        raise OptionRefused(f"progress must be host:port/token, not {value!r}")
    return value


def level(value: str) -> int:
    """An owner level; raises OptionRefused."""
    if not value.isdecimal() or int(value) > OWNER_LEVEL_MAX:
        raise OptionRefused(f"owner_level must be within 0..{OWNER_LEVEL_MAX}, not {value!r}")
    return int(value)


def choice(name: str, value: str, known: Sequence[str]) -> str:
    """One of a few words; raises OptionRefused."""
    if value not in known:
        raise OptionRefused(f"{name} must be {' or '.join(known)}, not {value!r}")
    return value

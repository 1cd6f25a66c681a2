"""The options of `df.write.format("lockstep")`.

An option is written as here or, as Spark's own are, in camel case.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from shared.domain.message import OWNER_LEVEL_MAX
from shared.settings import Settings
from spark.job.progress import ADDRESS
from spark.job.settings import OptionRefused, list_setting_names, read_app_settings
from spark.send.rows import PATIENCE_DEFAULT_SECONDS

ROWS_MAX_DEFAULT = 500
# Options that Spark itself adds for a stream.
STREAM_OPTIONS = {"checkpointlocation", "path"}
GAPS = ("refuse", "allow")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of one write, checked.

    `rate` is messages per second over all tasks, or None for no limit. It is divided evenly by
    `partitions`, because a task cannot see how many tasks there are. `batch` is how many rows a
    task holds before it sends them. `summary` is a file on the driver for the counts. `owner_level`
    fences writers of the same group that have a lower level. `gaps` allows numbers to skip, as they
    do in a part of what was sent before; what follows a gap waits until the gap is filled.
    `lanes` is where tasks record in the account what each of them has sent (SentLanes.option).
    `patience` is for how many seconds an operation is repeated while no region takes it, before the
    task fails. `progress` is the address of TaskReports, to which the tasks send how far they are;
    without it they write that to their stderr.
    """

    # Connection strings are among them.
    settings: Mapping[str, str] = field(repr=False)
    rate: float | None = None
    partitions: int | None = None
    batch: int = ROWS_MAX_DEFAULT
    summary: str | None = None
    owner_level: int = 0
    gaps: bool = False
    patience: float = PATIENCE_DEFAULT_SECONDS
    progress: str | None = None
    lanes: str | None = None

    @classmethod
    def read(
        cls, options: Mapping[str, str], beside: Mapping[str, str] | None = None
    ) -> "WriteOptions":
        """Check the options; raises OptionRefused, or InvalidSettings for the app settings.

        App settings that are no options are those in `beside`, and then in the environment.
        """
        given = {name.lower(): value for name, value in options.items()}
        for name in WRITE_OPTIONS:
            if (other := name.replace("_", "")) != name and other in given:
                if name in given:
                    raise OptionRefused(f"{name} is given twice, also as {other}")
                given[name] = given.pop(other)
        settings = read_app_settings(given, beside)
        Settings.read(settings)
        known = {name.lower() for name in list_setting_names(settings)}
        if unknown := sorted(given.keys() - known - WRITE_OPTIONS - STREAM_OPTIONS):
            raise OptionRefused(f"unknown options: {', '.join(unknown)}")
        if "rate" in given and "partitions" not in given:
            raise OptionRefused("rate needs partitions: how many tasks share it")
        if "partitions" in given and "rate" not in given:
            raise OptionRefused("partitions has no effect without rate")
        gaps, progress = given.get("gaps", GAPS[0]), given.get("progress")
        if gaps not in GAPS:
            raise OptionRefused(f"gaps must be {' or '.join(GAPS)}, not {gaps!r}")
        if progress is not None and not ADDRESS.fullmatch(progress):
            raise OptionRefused(f"progress must be an address of a driver, not {progress!r}")
        rate, partitions = given.get("rate"), given.get("partitions")
        patience = given.get("patience", str(PATIENCE_DEFAULT_SECONDS))
        return cls(
            settings=settings,
            rate=None if rate is None else parse_number("rate", rate),
            partitions=None if partitions is None else parse_count("partitions", partitions),
            batch=parse_count("batch", given.get("batch", str(ROWS_MAX_DEFAULT))),
            summary=given.get("summary"),
            owner_level=parse_owner_level(given.get("owner_level", "0")),
            gaps=gaps == "allow",
            patience=parse_number("patience", patience),
            progress=progress,
            lanes=given.get("lanes"),
        )

    def require_counted(self, partition: int) -> None:
        """Raise OptionRefused in a task that has no share of the rate.

        Spark numbers partitions from 0 on, and no task knows how many there are.
        """
        if self.partitions is not None and partition >= self.partitions:
            raise OptionRefused(
                f"the rate is shared by partitions={self.partitions}, but the table has at least "
                f"{partition + 1} partitions: give their number, or coalesce the table"
            )

    @property
    def rate_per_task(self) -> float | None:
        if self.rate is None or self.partitions is None:
            return None
        return self.rate / self.partitions


WRITE_OPTIONS = {field.name for field in fields(WriteOptions)} - {"settings"}


def parse_number(name: str, value: str) -> float:
    wanted = {"rate": "a number above zero", "patience": "seconds from 0 on"}[name]
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf") or (name == "rate" and not number):
        raise OptionRefused(f"{name} must be {wanted}, not {value!r}")
    return number


def parse_count(name: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise OptionRefused(f"{name} must be a whole number from 1, not {value!r}")
    return int(value)


def parse_owner_level(value: str) -> int:
    if not value.isdecimal() or len(value) > 5 or int(value) > OWNER_LEVEL_MAX:
        raise OptionRefused(f"owner_level must be within 0..{OWNER_LEVEL_MAX}, not {value!r}")
    return int(value)

"""The options of a feed beside its mapping."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shared.domain.errors import InvalidOptions
from shared.domain.producer import ProducerOptions
from spark.job.failures import JobRefused
from spark.send.options import ROWS_MAX_DEFAULT


class ChangePolicy(StrEnum):
    """The treatment of a late or a changed fact.

    APPEND sends it as the session's next event, after all that was sent; REJECT makes it a reject.
    """

    APPEND = "append"
    REJECT = "reject"


class DeletedPolicy(StrEnum):
    """The treatment of a key that was fed, and that a whole source has no more."""

    REPORT = "report"
    SEND = "send"


@dataclass(frozen=True, slots=True)
class ChangeLimit:
    """The most rows that may be changed: a number, or a share of the rows that were fed before."""

    most: float
    is_share: bool = False

    @classmethod
    def parse(cls, text: str) -> "ChangeLimit":
        """Read `100` or `5%`; raises ValueError."""
        number = text.removesuffix("%")
        is_share = number != text
        form = r"\d+(\.\d+)?" if is_share else r"\d+"
        if not re.fullmatch(form, number) or (is_share and float(number) > 100):
            raise ValueError(f"a whole number, or a share as in 5%, not {text!r}")
        return cls(float(number) / 100 if is_share else float(number), is_share)

    def require(self, changed: int, known: int, what: str = "changed") -> None:
        """Raise JobRefused if of so many known rows too many are changed, or deleted."""
        if changed > (self.most * known if self.is_share else self.most):
            limit = f"{self.most:.4g} of them" if self.is_share else f"{self.most:.0f}"
            raise JobRefused(
                f"{changed} of {known} rows that were fed before are {what}, over {limit}; "
                "nothing of this run was sent"
            )


# What is gone is taken for a truncated source rather than for deletions, if it is more than this
# and --max-changed does not say otherwise.
DELETED_MAX = ChangeLimit(0.1, is_share=True)


@dataclass(frozen=True, slots=True)
class FeedConfig:
    """The options of a feed beside its mapping; each is an argument of `python -m spark.feed`.

    `manifest` is a folder or URL; `cosmos+` before it says that its steps are in the account.
    `source` is the name under which the manifest keeps the watermark and the mapping. `changed_max`
    stops a feed by a manifest before it sends, if more rows are changed, or deleted. With `deleted`
    the source is whole: what was fed of it, and is gone, is counted, or sent as deleted. `lanes` is
    how many tasks send. `set_aside` is an unfinished run of the group that is not tried again:
    `who` decides that, and `why`. `app` is the folder of the app whose handlers a dry run asks
    whether they take what would be sent (without it the working folder, if it holds an app).
    `settings` are app settings over those that are in the environment when the feed begins.

    Raises InvalidOptions for a group that cannot be one, and for a field that has no effect without
    a manifest or a dry run.
    """

    group: str
    manifest: str | None = None
    source: str = ""
    rejects: str = "rejects"
    late: ChangePolicy = ChangePolicy.APPEND
    changed: ChangePolicy = ChangePolicy.APPEND
    changed_max: ChangeLimit | None = None
    deleted: DeletedPolicy | None = None
    accept_mapping: bool = False
    set_aside: int | None = None
    who: str = ""
    why: str = ""
    rate: float | None = None
    batch: int = ROWS_MAX_DEFAULT
    lanes: int | None = None
    dry_run: bool = False
    app: str | None = None
    # Connection strings may be among them.
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        ProducerOptions(self.group)
        given = {
            "late": self.late is not ChangePolicy.APPEND,
            "changed": self.changed is not ChangePolicy.APPEND,
            "changed_max": self.changed_max is not None,
            "deleted": self.deleted is not None,
            "accept_mapping": self.accept_mapping,
            "set_aside": self.set_aside is not None,
        }
        if self.manifest is None and (found := [name for name in given if given[name]]):
            raise InvalidOptions(f"{', '.join(found)} would have no effect without a manifest")
        if self.app is not None and not self.dry_run:
            raise InvalidOptions("app would have no effect without dry_run")
        if self.set_aside is not None and not (self.who.strip() and self.why.strip()):
            raise InvalidOptions("somebody sets a run aside, for a reason: give who and why")

"""The systems that are compared: this product and two patterns, each an app for the local cloud."""

from dataclasses import dataclass, field
from pathlib import Path

from cli.regions import CONFIG
from proof.testbed.cloud import CALLS_SETTING, ROOT

BASELINES = Path(__file__).parent / "baselines"


@dataclass(frozen=True, slots=True)
class System:
    """An app that consumes the messages of a session queue in two regions.

    `settings` stop what costs by the clock and not by the message, so that counts are exact.
    `batch_documents` is how many documents a transactional batch of its writes; None for a system
    whose batches only create, so that the documents added say it.
    """

    name: str
    app: Path
    queue: str
    settings: dict[str, str] = field(default_factory=dict)
    batch_documents: int | None = None

    @property
    def config(self) -> Path:
        """The configuration of its cloud: the product's unless it has its own."""
        own = self.app / CONFIG.name
        return own if own.exists() else CONFIG


NO_CLOCKWORK = {f"AzureWebJobs_{timer}_Disabled": "true" for timer in ("sweep", "compact")}
OURS = System("lockstep", ROOT, "lockstep", NO_CLOCKWORK)
ONE_CALL = System("lockstep, one call", ROOT, "lockstep", {**NO_CLOCKWORK, CALLS_SETTING: "1"})
CLAIM_AND_UPDATE = System("claim_and_update", BASELINES / "claim_and_update", "baseline")
READ_BATCH_MARK = System(
    "read_batch_mark", BASELINES / "read_batch_mark", "baseline", batch_documents=2
)
EMPTY = System("empty function", BASELINES / "empty", "baseline")
SYSTEMS = (OURS, CLAIM_AND_UPDATE, READ_BATCH_MARK)

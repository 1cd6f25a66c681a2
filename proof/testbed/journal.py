"""The work that is left in a journal, read by the plain Azure SDK."""

from dataclasses import dataclass

from local.testing.cloud import CloudProcess

# Everything in the journal that somebody has yet to do something with.
LEFT_QUERY = (
    "SELECT c.pending, c.blocked FROM c WHERE ARRAY_LENGTH(c.pending) > 0"
    " OR ARRAY_LENGTH(c.blocked) > 0 OR c.claimed = TRUE OR c.waiting = TRUE"
)
PAGE = 1_000


@dataclass(frozen=True, slots=True)
class JournalWork:
    """The numbers of documents that have something to deliver, and that wait for something else."""

    pending: int
    waiting: int

    @property
    def is_done(self) -> bool:
        return not self.pending and not self.waiting


def read_work(cloud: CloudProcess) -> JournalWork | None:
    """Return what is left to do in the journal; None where it does not answer at the moment."""
    from azure.core.exceptions import AzureError

    try:
        with cloud.open_container() as container:
            found = list(
                container.query_items(
                    LEFT_QUERY, enable_cross_partition_query=True, max_item_count=PAGE
                )
            )
    except AzureError:
        return None
    pending = sum(bool(one.get("pending") or one.get("blocked")) for one in found)
    return JournalWork(pending, len(found) - pending)

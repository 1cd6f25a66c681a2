"""Reading one range of a change feed page by page."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from azure.cosmos.aio import ContainerProxy

from local.functions_host.changefeed.lease import Lease

type Start = Literal["Beginning", "Now"] | datetime


@dataclass(frozen=True, slots=True)
class Page:
    """Changed documents, oldest change first, and where to go on; None if that is unchanged."""

    documents: list[dict[str, Any]]
    continuation: str | None


async def read_page(container: ContainerProxy, lease: Lease, page_items: int, start: Start) -> Page:
    """Read the next page behind a lease; it may be empty.

    `start` counts only while the lease has no continuation. Errors are the client's.
    """
    answers: list[Mapping[str, Any]] = []
    first: dict[str, Any] = {
        "feed_range": dict(lease.feed_range),
        "start_time": start,
    }
    feed = container.query_items_change_feed(
        max_item_count=page_items,
        response_hook=lambda headers, _: answers.append(headers),
        **({"continuation": lease.continuation} if lease.continuation else first),
    )
    documents: list[dict[str, Any]] = []
    async for page in feed.by_page():
        documents = [document async for document in page]
        break
    return Page(documents, continuation_of(answers))


def continuation_of(answers: list[Mapping[str, Any]]) -> str | None:
    """The place to go on from.

    The client writes its composite token over the etag in the headers of the answer, after it has
    shown them to the hook; it gives an empty page's token nowhere else.
    """
    token = answers[-1].get("etag") if answers else None
    return str(token) if token else None

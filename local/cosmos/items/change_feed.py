"""The change feed in latest-version mode: each item once, at its newest version.

Oldest change first. Deletes and overwritten versions do not appear, as on the real service. A
position in the feed of a physical partition is the sequence number (LSN) of the last transaction
read, as an entity tag. What one transaction wrote has one number and is never torn apart, so a page
may hold more items than were asked for.
"""

import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from local.cosmos.items import charges
from local.cosmos.items.containers import Container
from local.cosmos.items.partitions import KeyRange
from local.cosmos.items.storage import Storage
from local.cosmos.responses import BadRequest, CosmosResponse, write_item_list

PAGE_BYTES = 4 * 1024 * 1024
TAG = re.compile(r'"?(\d+)"?')


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """What part of the feed of one physical partition is asked for.

    `after` None means from the beginning; `key`, if given, is a logical partition.
    """

    pkrange: int
    after: int | None
    since: int | None
    key: str | None
    key_range: KeyRange
    page_items: int
    is_strong: bool


def parse_position(if_none_match: str | None, newest: int) -> int | None:
    """The sequence number to resume after; `*` is now."""
    if if_none_match is None:
        return None
    if if_none_match == "*":
        return newest
    if (match := TAG.fullmatch(if_none_match)) is None:
        raise BadRequest(f"{if_none_match!r} is not a position in the change feed")
    return int(match[1])


def parse_since(if_modified_since: str | None) -> int | None:
    """The second to start from, of an If-Modified-Since header."""
    if if_modified_since is None:
        return None
    try:
        return int(parsedate_to_datetime(if_modified_since).timestamp())
    except ValueError as error:
        raise BadRequest(f"If-Modified-Since {if_modified_since!r} is not a date") from error


def read_feed(
    storage: Storage, container: Container, request: FeedRequest, now: int
) -> CosmosResponse:
    """One page of changes; 304 with the newest position when there is none."""
    position = request.after or 0
    sql = (
        "SELECT lsn, partition, body FROM items WHERE container = ? AND pkrange = ? AND lsn > ?"
        " AND (expires IS NULL OR expires > ?)"
    )
    values: list[object] = [container.number, request.pkrange, position, now]
    if request.key is not None:
        sql += " AND partition = ?"
        values.append(request.key)
    if request.since is not None:
        sql += " AND ts >= ?"
        values.append(request.since)
    sql += " ORDER BY lsn, version"
    texts: list[str] = []
    sizes: list[int] = []
    room = PAGE_BYTES
    for lsn, partition, body in storage.connection.execute(sql, values):
        is_full = len(texts) >= request.page_items or room <= 0
        if is_full and lsn != position:  # a page ends with a transaction
            break
        position = lsn
        if request.key_range.covers(partition):
            texts.append(f'{body[:-1]},"_lsn":{lsn}}}')
            sizes.append(len(body))
            room -= len(body)
    else:
        position = max(position, storage.find_lsn(container.number, request.pkrange))
    charge = charges.query(sizes, is_strong=request.is_strong)
    headers = {"etag": f'"{position}"', "x-ms-item-count": str(len(texts))}
    if not texts:
        return CosmosResponse(304, b"", charge, headers)
    return CosmosResponse(200, write_item_list(container.rid, texts), charge, headers)

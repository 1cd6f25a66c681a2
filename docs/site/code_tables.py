"""Tables of settings, measures, limits and charges, from what the code says of them."""

from docs.site.markdown import code, table
from local.cosmos import charges
from local.cosmos.http.batches import BATCH_BYTES_MAX, OPERATIONS_MAX
from local.cosmos.items import containers, documents, partitions, patch
from local.cosmos.query.paging import PAGE_BYTES, PAGE_ITEMS
from local.cosmos.server import BODY_BYTES_MAX as REQUEST_BYTES_MAX
from local.cosmos.sql.parser import DEPTH_MAX
from shared.domain.measures import MEASURES, Measure
from shared.domain.message import (
    BODY_BYTES_MAX,
    ID_CHARACTERS_MAX,
    OWNER_LEVEL_MAX,
    QUEUE_CHARACTERS_MAX,
    SEQUENCE_MAX,
    TYPE_CHARACTERS_MAX,
)
from shared.domain.producer import HTTP_GROUP, REMEMBERED_MAX, RESERVED_PREFIXES
from shared.settings import SERVICE_BUS_PREFIX, SETTINGS, Setting
from shared.storage.limits import OPERATION_BYTES_MAX, OPERATION_MESSAGES_MAX

MEBIBYTE = 1024 * 1024
SMALL, LARGE = 1024, 100 * 1024
QUERY_SOURCE = (
    f"estimate: {charges.QUERY_BASE} and a tenth of a read per item looked at; twice if strong."
    " Items that an index rules out are not looked at"
)


def render_settings() -> str:
    rows = [(code(one.name), describe_default(one), one.meaning) for one in SETTINGS]
    bus = code(f"{SERVICE_BUS_PREFIX}<region>")
    rows.append((bus, "required", "the connection of each region's namespace"))
    return table(("name", "default", "meaning"), rows)


def describe_default(setting: Setting) -> str:
    if setting.default is None:
        return "required"
    return code(setting.default) if setting.default else "empty"


def render_measures() -> str:
    head = ("name", "kind", "unit", "attributes", "meaning")
    return table(head, [describe_measure(one) for one in MEASURES])


def describe_measure(one: Measure) -> tuple[str, ...]:
    attributes = ", ".join(code(name) for name in one.attributes)
    return code(one.name), one.kind.name.lower(), one.unit.strip("{}"), attributes, one.meaning


def render_publishing_limits() -> str:
    prefixes = [code(prefix) for prefix in RESERVED_PREFIXES]
    reserved = f"{', '.join(prefixes[:-1])} or {prefixes[-1]}"
    rows = {
        "one operation": f"{OPERATION_MESSAGES_MAX:,} messages and {OPERATION_BYTES_MAX:,} bytes as"
        " stored, else `TooLarge`",
        "one message": f"{BODY_BYTES_MAX:,} bytes of body",
        "ids and sessions, types, queues for answers": f"1 to {ID_CHARACTERS_MAX},"
        f" {TYPE_CHARACTERS_MAX} and {QUEUE_CHARACTERS_MAX} characters",
        "what a retry recognises": f"the newest {REMEMBERED_MAX} ids per group and session, or"
        " those of the newest operation if there are more; an older id is a new message",
        "what `ingest` recognises": "every `Idempotency-Key` of a session for a day, however many"
        " others came after it",
        "owner level, starting number": f"0 to {OWNER_LEVEL_MAX:,}; 0 to {SEQUENCE_MAX:,}, and 0"
        " in a session the group never published to",
        "group id": f"1 to {ID_CHARACTERS_MAX} characters; not `{HTTP_GROUP}`, and not beginning"
        f" with {reserved}",
        "sessions and types": "no session of a saga (`saga:`), and no type of the app's own"
        " (`lockstep.`), else `NotAllowed`",
    }
    return table(("what", "limit"), list(rows.items()))


def render_cosmos_limits() -> str:
    rows = {
        "a request": f"{REQUEST_BYTES_MAX // MEBIBYTE} MiB",
        "an item": f"{documents.ITEM_BYTES_MAX // MEBIBYTE} MiB, nested"
        f" {documents.LEVELS_MAX} deep",
        "a batch": f"{OPERATIONS_MAX} operations and {BATCH_BYTES_MAX // MEBIBYTE} MiB",
        "a patch": f"{patch.CHANGES_MAX} operations",
        "a page": f"{PAGE_ITEMS} items, unless asked for, and {PAGE_BYTES // MEBIBYTE} MiB",
        "the id of an item": f"{containers.ID_BYTES_MAX} bytes",
        "the id of a database or container": f"{containers.NAME_CHARACTERS_MAX} characters",
        "a partition key": f"{partitions.KEY_BYTES_MAX} bytes",
        "a query": f"nested {DEPTH_MAX} deep",
    }
    return table(("limit of", "is"), list(rows.items()))


def render_cosmos_charges() -> str:
    rows = {
        "read": (
            [charges.read(size, is_strong=False) for size in (SMALL, LARGE)],
            "published; between them a straight line, in steps of a started KB",
        ),
        "read, strong or bounded staleness": (
            [charges.read(size, is_strong=True) for size in (SMALL, LARGE)],
            "published",
        ),
        "create, nothing indexed": (
            [charges.insert(size, 0) for size in (SMALL, LARGE)],
            "published",
        ),
        "replace or patch, nothing indexed": (
            [charges.replace(size, 0) for size in (SMALL, LARGE)],
            "published: twice a create",
        ),
        "delete": ([charges.delete(size) for size in (SMALL, LARGE)], "estimate"),
        "query or feed that looked at one item": (
            [charges.query([size], is_strong=False) for size in (SMALL, LARGE)],
            QUERY_SOURCE,
        ),
        "each indexed property": (
            [charges.INDEXED_PROPERTY] * 2,
            "estimate: in a create; a replace takes twice as much",
        ),
        "metadata": ([charges.METADATA] * 2, "estimate"),
        "refusal": ([charges.REFUSAL] * 2, "estimate; a failed batch is one"),
    }
    return table(
        ("charge", "request units at 1 KB / 100 KB", "source"),
        [(what, f"{small:g} / {large:g}", why) for what, ((small, large), why) in rows.items()],
    )

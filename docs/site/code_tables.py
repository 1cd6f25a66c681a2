"""Tables of settings, measures and limits, from what the code says of them."""

from docs.site.markdown import code, table
from shared.domain import errors
from shared.domain.errors import FailureReason, LockstepError
from shared.domain.failures import FAILURE_RULES
from shared.domain.measures import MEASURES, Measure
from shared.domain.message import (
    BODY_BYTES_MAX_BY_SKU,
    ID_CHARACTERS_MAX,
    OWNER_LEVEL_MAX,
    QUEUE_CHARACTERS_MAX,
    SEQUENCE_MAX,
    TYPE_CHARACTERS_MAX,
)
from shared.domain.producer import HTTP_GROUP, REMEMBERED_MAX, RESERVED_PREFIXES
from shared.settings import SERVICE_BUS_PREFIX, SETTINGS, Setting
from shared.storage.limits import OPERATION_BYTES_MAX, OPERATION_MESSAGES_MAX


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


def render_reasons() -> str:
    """Each reason with the errors that have it, and the failures that give it to others."""
    kinds = [one for one in vars(errors).values() if isinstance(one, type)]
    raised = [one for one in kinds if issubclass(one, LockstepError) and one is not LockstepError]
    rows = []
    for reason in FailureReason:
        names = [code(one.__name__) for one in raised if one.reason is reason]
        if reason is FailureReason.GENERAL_ERROR:
            names = ["every other error"]
        names += [rule.why.rstrip(".").lower() for rule in FAILURE_RULES if rule.reason is reason]
        transient = any(one.is_transient for one in raised if one.reason is reason)
        rows.append((code(reason), ", ".join(names), "yes" if transient else "no"))
    return table(("reason", "errors, and failures of the services", "`is_transient`"), rows)


def render_publishing_limits() -> str:
    prefixes = [code(prefix) for prefix in RESERVED_PREFIXES]
    reserved = f"{', '.join(prefixes[:-1])} or {prefixes[-1]}"
    rows = {
        "one operation": f"{OPERATION_MESSAGES_MAX:,} messages and {OPERATION_BYTES_MAX:,} bytes as"
        " stored, else `TooLarge`",
        "one message": ", ".join(
            f"{most:,} bytes of body with {sku}" for sku, most in BODY_BYTES_MAX_BY_SKU.items()
        ),
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
        "sessions and types": "no session with control characters or marks that turn the direction"
        " of text, else `InvalidMessage`; no session of a saga (`saga:`), and no type of the app's"
        " own (`lockstep.`), else `NotAllowed`",
    }
    return table(("what", "limit"), list(rows.items()))

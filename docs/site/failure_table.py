"""The table of failures in docs/guarantees.md, from the rules that the adapters apply."""

from dataclasses import dataclass

from docs.site.markdown import table
from shared.domain.failures import FAILURE_RULES, FailureClass, FailureRule, Service


@dataclass(frozen=True, slots=True)
class Consequences:
    """What a failure of a class means to a message, to its session, and to an operator."""

    message: str
    session: str
    operator: str


WAITS = "Waits in its queue. Its deliveries come after 1 s, 2 s, 4 s and so on, up to 120 s."
STANDS_STILL = "Stands still. Others that the failure does not touch go on."
CONSEQUENCES = {
    (Service.STORE, FailureClass.ANSWER): Consequences(
        "Is decided on what is stored: a copy, its turn, or a newer head.", "Goes on.", "Nothing."
    ),
    (Service.STORE, FailureClass.TRANSIENT): Consequences(
        WAITS, STANDS_STILL, "Failed invocations in the log, and 503 at `/api/health`."
    ),
    (Service.STORE, FailureClass.MESSAGE): Consequences(
        "Becomes a fault with the store's reason. Nothing of its handler's result is kept.",
        "Halts, or goes on, as the type says.",
        "`GET /api/faults`, and the error queue.",
    ),
    (Service.STORE, FailureClass.DESTINATION): Consequences(
        WAITS,
        STANDS_STILL,
        "Failed invocations in the log, and the reason at `/api/status`, until a person changes"
        " what it names. Messages that waited for a day become faults.",
    ),
    (Service.STORE, FailureClass.UNKNOWN): Consequences(
        f"Its entry is read back and written again, six times. Then: {WAITS}",
        STANDS_STILL,
        "Failed invocations in the log.",
    ),
    (Service.BUS, FailureClass.TRANSIENT): Consequences(
        "Is processed. Its outputs stay pending for the region.",
        "Goes on, unless no region takes its outputs.",
        "The `outbox` of `GET /api/sessions/{session}`.",
    ),
    (Service.BUS, FailureClass.MESSAGE): Consequences(
        "Is processed. A tombstone takes the output's place.",
        "Goes on.",
        "`refused` in the faults.",
    ),
    (Service.BUS, FailureClass.DESTINATION): Consequences(
        "Is processed. Its outputs to that queue are blocked, and no others.",
        "Goes on.",
        "`outbox.blocked` with the reason; the sweep tries again, and people may redirect or drop.",
    ),
    (Service.BUS, FailureClass.UNKNOWN): Consequences(
        "Is processed. Its outputs are sent again, and receivers know their numbers.",
        "Goes on, unless no region takes its outputs.",
        "The `outbox` of `GET /api/sessions/{session}`.",
    ),
}


def render() -> str:
    """The table as Markdown: a row for each rule."""
    columns = ("failure", "class", "a message", "its session", "an operator sees")
    rows = []
    for rule in FAILURE_RULES:
        seen = CONSEQUENCES[rule.service, rule.failure_class]
        rows.append((describe(rule), rule.failure_class, seen.message, seen.session, seen.operator))
    return table(columns, rows)


def describe(rule: FailureRule) -> str:
    """Who says what, and what that means."""
    codes = ", ".join(f"`{code}`" for code in rule.codes) or "anything else, or nothing"
    if rule.sub_status is not None:
        codes += f" with sub-status `{rule.sub_status}`"
    if rule.is_write is not None:
        codes += " to a write" if rule.is_write else " to a read"
    return f"{rule.service}: {codes}. {rule.why}"

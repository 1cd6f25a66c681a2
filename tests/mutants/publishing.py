"""Publishing got wrong, each as one small change."""

from tests.mutants.catalogue import PRODUCER, PUBLISH, PUBLISHING
from tests.mutants.mutant import Mutant

LEDGERS = "shared/usecases/ledgers.py"
PUBLISHING_CLIENT = "shared/publishing/producer.py"
NUMBERS = "tests/unit/shared/test_producer_numbers.py"
CLIENT = "tests/unit/shared/test_publishing_client.py"
CUT_SHORT = "tests/scenarios/test_when_a_publish_is_cut_short.py"
ANOTHER_BATCH = "tests/scenarios/test_when_another_batch_follows_an_unknown_send.py"
CANCELLED = "tests/scenarios/test_when_a_send_is_cancelled.py"
PUBLISHING_TWIN = "tests/contract/test_publishing_on_the_twin.py"

TELL = """\
        if safe is not None and not refused:
            safe(left)
"""
STRIKE_OFF = """\
        with suppress(Unavailable, OutcomeUnknown):
            await self.journal.acknowledge(owing.session, owing.document_id, regions, refused)
"""

MUTANTS = (
    Mutant(
        "remember half of a large operation",
        "P2",
        PRODUCER,
        "[-max(REMEMBERED_MAX, len(fresh)) :]",
        "[-REMEMBERED_MAX:]",
        PUBLISHING,
    ),
    Mutant(
        "number messages without owing them",
        "P1",
        LEDGERS,
        "save_ledger(session, numbered.ledger, expected, outbox)",
        "save_ledger(session, numbered.ledger, expected)",
        CUT_SHORT,
    ),
    Mutant(
        "send newer messages before what was left unsent",
        "P3",
        LEDGERS,
        "            if await self.settle(session, group):\n",
        "            if False:\n",
        ANOTHER_BATCH,
    ),
    Mutant(
        "trust what a failed publish left in memory",
        "P1",
        PUBLISH,
        "self.ledgers.known.pop((session, options.producer_group_id), None)",
        "pass",
        ANOTHER_BATCH,
    ),
    Mutant(
        "call a publish done that no region took",
        "P1",
        LEDGERS,
        "if not regions:",
        "if False:",
        ANOTHER_BATCH,
    ),
    Mutant(
        "let numbers run over their end",
        "P2",
        PRODUCER,
        "if sequence > SEQUENCE_MAX:",
        "if False:",
        NUMBERS,
    ),
    Mutant(
        "take a caller's starting number on trust",
        "P2",
        PRODUCER,
        "if start is not None and start not in (ledger.began, ledger.next):",
        "if False:",
        NUMBERS,
    ),
    Mutant(
        "send again what is known to be sent",
        "P7",
        PUBLISH,
        "if not numbered.fresh:",
        "if False:",
        PUBLISHING,
    ),
    Mutant(
        "use a session whose number contradicted the ledger",
        "P9",
        PUBLISHING_CLIENT,
        "                self.broken[session] = error\n",
        "",
        PUBLISHING_TWIN,
    ),
    Mutant(
        "tell of success only when it is struck off",
        "P9",
        LEDGERS,
        TELL + STRIKE_OFF,
        STRIKE_OFF + TELL,
        CANCELLED,
    ),
    Mutant(
        "call a voided message published",
        "P9",
        PUBLISH,
        "if left.refused:",
        "if False:",
        PUBLISHING,
    ),
    Mutant(
        "call a message published that was voided meanwhile",
        "P9",
        LEDGERS,
        "return any(outbox.refused for outbox in left)",
        "return False",
        PUBLISHING,
    ),
    Mutant(
        "know what was voided as sent",
        "P1",
        LEDGERS,
        "await self.disown(owing.session, group, refused)",
        "pass",
        PUBLISHING,
    ),
    Mutant(
        "skip the settling of what another process numbered",
        "P1",
        LEDGERS,
        "if tried and is_known and await self.settle(session, group):",
        "if False:",
        PUBLISHING,
    ),
)

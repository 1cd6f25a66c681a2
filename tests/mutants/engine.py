"""Claims, markers, stages, batches and compaction got wrong, each as one small change."""

from tests.mutants.catalogue import (
    BATCH,
    CONSUME,
    ENTRIES,
    HANDLING,
    MEMORY_STORE,
    PROCESS,
    RECEIVE,
    RECEIVING,
    RESCUE,
)
from tests.mutants.mutant import Mutant

ACKNOWLEDGE = "shared/usecases/acknowledge.py"
ARRIVAL = "shared/domain/arrival.py"
CLAIM = "shared/usecases/claim.py"
COMMAND = "shared/usecases/command.py"
COMPACT = "shared/usecases/compact.py"
OUTCOMES = "shared/usecases/outcomes.py"
OUTPUTS = "shared/usecases/outputs.py"
REPORTS = "shared/domain/reports.py"
TURNS = "shared/usecases/turns.py"

SCENARIO = "tests/scenarios/test_when_{}.py".format
BATCH_ARRIVES = SCENARIO("a_batch_arrives")
CLAIM_DIES = SCENARIO("the_owner_of_a_claim_dies")
COMMAND_REPEATED = SCENARIO("a_command_is_repeated")
COMPACTED = SCENARIO("old_entries_are_compacted")
MADE_AGAIN = SCENARIO("outputs_are_made_again")
MANY_STUCK = SCENARIO("many_outboxes_are_stuck")
NO_NUMBER = SCENARIO("a_message_has_no_number")
PAUSED = SCENARIO("a_paused_owner_wakes")
PUT_OFF = SCENARIO("an_acknowledgement_is_put_off")
REFUSED = SCENARIO("a_queue_refuses_an_output")
SLOW = SCENARIO("a_handler_is_slower_than_its_lease")
TOO_LARGE = SCENARIO("outputs_are_too_large_for_an_entry")
USED_AGAIN = SCENARIO("a_number_is_used_again")
WRONG_CLOCK = SCENARIO("a_workers_clock_is_wrong")
HANDLERS = "tests/unit/shared/test_handling.py"

MUTANTS = (
    Mutant(
        "take a claim over by the worker's own clock",
        "P2",
        CONSUME,
        "if held.expired:",
        "if held.entry.lease and self.clock.now() > held.entry.lease.seconds:",
        WRONG_CLOCK,
    ),
    Mutant("take over a claim that is held", "P2", CONSUME, "if held.expired:", "if True:", SLOW),
    Mutant(
        "replace without If-Match",
        "P2",
        MEMORY_STORE,
        'return stored is not None and stored["_etag"] == version',
        "return stored is not None",
        PAUSED,
    ),
    Mutant(
        "never renew a claim",
        "P2",
        CLAIM,
        "await self.clock.sleep(self.lease_seconds / RENEWALS_PER_LEASE)",
        "await self.clock.sleep(self.lease_seconds / RENEWALS_PER_LEASE)\n            continue",
        SLOW,
    ),
    Mutant(
        "let whoever parks beside a claim renew it",
        "P6",
        CLAIM,
        "entries.left_as_it_was(held.entry, held.since)",
        "held.entry",
        CLAIM_DIES,
    ),
    Mutant(
        "have no sweep for dead owners",
        "P6",
        RESCUE,
        "claimed = await self.sweep_for(Sought.CLAIMED, self.resume_session, limit)",
        "claimed = Rescued()",
        CLAIM_DIES,
    ),
    Mutant(
        "let a message kill its owners for ever",
        "P9",
        CLAIM,
        "if claim.lease and handler and claim.lease.tries > handler.attempts:",
        "if False:",
        CLAIM_DIES,
    ),
    Mutant(
        "give a claimed message's copies back to their queue",
        "P7",
        CONSUME,
        "            return Claimed()",
        "            raise TimeoutError(message.id)",
        SLOW,
    ),
    Mutant(
        "leave no proof of an un-numbered message",
        "P2",
        BATCH,
        "return [Create(document, Appended.SEEN_BEFORE) for document in documents]",
        "return []",
        NO_NUMBER,
    ),
    Mutant(
        "forget un-numbered messages within their window",
        "P2",
        ARRIVAL,
        "return int(window_seconds) + 2 * CLOCK_SLACK_SECONDS",
        "return int(window_seconds) // 2",
        NO_NUMBER,
    ),
    Mutant(
        "take an un-numbered message of any age",
        "P9",
        ARRIVAL,
        "if age <= window_seconds:",
        "if True:",
        NO_NUMBER,
    ),
    Mutant(
        "take other content under a used number for a copy",
        "P9",
        OUTCOMES,
        "return AlreadyDone() if digest == message.digest else conflicting(message)",
        "return AlreadyDone()",
        USED_AGAIN,
    ),
    Mutant(
        "carry an acknowledgement that nobody gave",
        "P6",
        ACKNOWLEDGE,
        "return taken is not None and taken.entry.position == head.position",
        "return True",
        PUT_OFF,
    ),
    Mutant(
        "commit without adopting what was staged",
        "P5",
        BATCH,
        "Appended.ORPHANED) for document_id in parts(staged)]",
        "Appended.ORPHANED) for document_id in ()]",
        TOO_LARGE,
    ),
    Mutant(
        "make outputs again on the latest state",
        "P4",
        OUTPUTS,
        "state = await self.worker.state_after(head)",
        "state = await self.worker.state_after(await self.store.head(entry.session))",
        MADE_AGAIN,
    ),
    Mutant(
        "seed randomness with hash()",
        "P4",
        HANDLING,
        'seed = hashlib.sha256(f"{self.message.session}\\0{self.message.id}".encode()).digest()',
        "seed = hash(self.message.id).to_bytes(16, 'big', signed=True)",
        HANDLERS,
    ),
    Mutant(
        "void an output without its number",
        "P6",
        REPORTS,
        "return replace(message, type=VOID_TYPE,",
        "return replace(message, number=None, type=VOID_TYPE,",
        REFUSED,
    ),
    Mutant(
        "put messages of several sessions into one entry",
        "P2",
        RECEIVE,
        "return message.session, message.number is not None",
        'return "", message.number is not None',
        RECEIVING,
    ),
    Mutant(
        "wait for each message of a batch",
        "P7",
        CONSUME,
        "is_patient = in_time and not are_parked(head, message)",
        "is_patient = in_time",
        BATCH_ARRIVES,
    ),
    Mutant(
        "commit half of a batch",
        "P1",
        ENTRIES,
        "covers=first.identities + second.identities,",
        "covers=second.identities,",
        BATCH_ARRIVES,
    ),
    Mutant(
        "try the same stuck sessions first every time",
        "P6",
        TURNS,
        "return sorted(",
        "return list(sessions) or sorted(",
        MANY_STUCK,
    ),
    Mutant(
        "compact what is still owed",
        "P1",
        COMPACT,
        "needed += [await self.needed_by(owing) for owing in owings]",
        "needed += []",
        COMPACTED,
    ),
    Mutant(
        "do not record a handler that sends nothing",
        "P2",
        PROCESS,
        "if await self.append(step.head, ending.entry) is not Appended.CREATED:",
        "if ending.batches and await self.append(step.head, ending.entry) is not Appended.CREATED:",
        "tests/scenarios/test_when_the_owner_dies_after_commit.py",
    ),
    Mutant(
        "take what another command was answered",
        "P5",
        COMMAND,
        "one.id == command.id for one in entry.identities",
        "entry.identities",
        COMMAND_REPEATED,
    ),
)

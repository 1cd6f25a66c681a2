"""Ways in which this kind of system is got wrong, each as one small change to our own code."""

from tests.mutants.mutant import Mutant

BATCH = "shared/domain/batch.py"
COMMIT = "shared/usecases/commit.py"
CONSUME = "shared/usecases/consume.py"
DELIVER = "shared/usecases/deliver.py"
DISPATCH = "shared/usecases/dispatch.py"
DOCUMENTS = "shared/domain/documents.py"
ENTRIES = "shared/domain/entries.py"
HANDLING = "shared/domain/handling.py"
JOURNAL = "shared/domain/journal.py"
MEMORY_STORE = "shared/adapters/memory_store.py"
MESSAGE = "shared/domain/message.py"
OWE = "shared/usecases/owe.py"
PROCESS = "shared/usecases/process.py"
PRODUCER = "shared/domain/producer.py"
PUBLISH = "shared/usecases/publish.py"
RECEIVE = "functions/receive.py"
RESCUE_TRIGGER = "functions/rescue.py"
RESCUE = "shared/usecases/rescue.py"
RUNNING = "shared/domain/running.py"
STORED_MESSAGES = "shared/domain/stored_messages.py"

DECISIONS = "tests/unit/shared/test_journal.py"
HANDLERS = "tests/unit/shared/test_handling.py"
MESSAGES = "tests/unit/shared/test_message.py"
PUBLISHING = "tests/unit/shared/test_publish.py"
RECEIVING = "tests/unit/functions/test_receive.py"
RESCUING = "tests/unit/functions/test_rescue.py"
TWIN = "tests/contract/test_memory.py"
BOTH_AT_ONCE = "tests/scenarios/test_when_both_regions_take_a_message_at_once.py"
EARLIER_MISSING = "tests/scenarios/test_when_an_earlier_message_is_missing.py"
HANDLER_FAILS = "tests/scenarios/test_when_a_handler_fails.py"
DARK_REGION = "tests/scenarios/test_when_a_region_is_dark.py"
LOST_ANSWER = "tests/scenarios/test_when_the_commits_answer_is_lost.py"
MISSED_OUTPUT = "tests/scenarios/test_when_a_region_misses_an_output.py"
OWNER_DIES = "tests/scenarios/test_when_the_owner_dies_after_commit.py"
SECOND_PRODUCER = "tests/scenarios/test_when_a_second_producer_takes_over.py"


MUTANTS = (
    Mutant(
        "settle before the journal has it",
        "P1",
        RECEIVE,
        "outcome = await services.consumer.consume(message)",
        "outcome = AlreadyDone()\n"
        "        __import__('asyncio').ensure_future(services.consumer.consume(message))",
        RECEIVING,
    ),
    Mutant(
        "forget the copy that a dark region missed",
        "P1",
        OWE,
        "if missing.owing:",
        "if False:",
        DARK_REGION,
    ),
    Mutant(
        "accept messages that no region took",
        "P1",
        OWE,
        "if not reached:",
        "if False:",
        DARK_REGION,
    ),
    Mutant(
        "take an unknown send for a success",
        "P1",
        DELIVER,
        "            return False\n        return True",
        "        return True",
        DARK_REGION,
    ),
    Mutant(
        "deduplicate one number too few",
        "P2",
        JOURNAL,
        "if is_passed(head, message):\n        return Duplicate()",
        "if False:\n        return Duplicate()",
        DECISIONS,
    ),
    Mutant(
        "upsert instead of create",
        "P2",
        MEMORY_STORE,
        'return self.read(session, document["id"]) is None',
        "return True",
        BOTH_AT_ONCE,
    ),
    Mutant(
        "take an unknown commit for a success",
        "P2",
        COMMIT,
        "if appended is not Appended.CREATED and await self.is_ours(entry):",
        "if appended is None:",
        LOST_ANSWER,
    ),
    Mutant(
        "take an unknown commit for a failure",
        "P2",
        COMMIT,
        "if appended is not Appended.CREATED and await self.is_ours(entry):",
        "if False:",
        LOST_ANSWER,
    ),
    Mutant(
        "call a commit refused that may have been made",
        "P2",
        COMMIT,
        "            if is_first:\n                raise\n            return None",
        "            raise",
        LOST_ANSWER,
    ),
    Mutant(
        "take anybody's entry for our own",
        "P2",
        COMMIT,
        "return stored is not None and stored.attempt == entry.attempt",
        "return stored is not None",
        BOTH_AT_ONCE,
    ),
    Mutant(
        "name every attempt alike",
        "P2",
        COMMIT,
        'Attempt(f"{self.owner.instance}/{next(self.attempts)}", self.owner)',
        'Attempt("attempt", Owner("east", "any"))',
        BOTH_AT_ONCE,
    ),
    Mutant(
        "let ids collide by joining them",
        "P2",
        MESSAGE,
        'len(part.encode()).to_bytes(4, "big") + part.encode()',
        "part.encode()",
        MESSAGES,
    ),
    Mutant(
        "accept a stale owner level",
        "P2",
        JOURNAL,
        "if message.number.level < cursor.level and head.status is not Status.WORKING:",
        "if False:",
        SECOND_PRODUCER,
    ),
    Mutant(
        "apply a message before its turn",
        "P3",
        JOURNAL,
        "return message.number.sequence == cursor_of(head, message.number.group).next",
        "return True",
        DECISIONS,
    ),
    Mutant(
        "commit on a head that is gone",
        "P3",
        BATCH,
        "return Read(predecessor, Appended.ORPHANED)",
        'return Create(genesis_document(f"{entry.session}!"), Appended.ORPHANED)',
        TWIN,
    ),
    Mutant(
        "advance the cursor for a refused message",
        "P3",
        ENTRIES,
        "return replace(entry, status=Status.SKIPPED, reason=reason,",
        "cursors = advanced(entry.cursors, entry.identities[-1].number)\n"
        "    return replace(entry, status=Status.SKIPPED, cursors=cursors, reason=reason,",
        DECISIONS,
    ),
    Mutant(
        "send two operations to a session at once",
        "P3",
        PUBLISH,
        "async with self.turns.of(messages[0].session):",
        "if True:",
        PUBLISHING,
    ),
    Mutant(
        "draw randomness from hash()",
        "P4",
        HANDLING,
        'random.Random(int.from_bytes(seed, "big"))',
        "random.Random(hash(seed))",
        HANDLERS,
    ),
    Mutant(
        "give outputs random ids",
        "P4",
        RUNNING,
        'id=derived_id(cause.session, cause.id, "output", str(index)),',
        'id=__import__("uuid").uuid4().hex,',
        HANDLERS,
    ),
    Mutant(
        "reuse a number for other content",
        "P4",
        PRODUCER,
        "if bound.digest != content_digest(draft.type, draft.body):",
        "if False:",
        SECOND_PRODUCER,
    ),
    Mutant(
        "forget which number a message had",
        "P4",
        PRODUCER,
        "bound = known.get(draft.id) or following(",
        "bound = following(",
        SECOND_PRODUCER,
    ),
    Mutant(
        "dispatch outputs only from the worker that made them",
        "P5",
        STORED_MESSAGES,
        '({"owing": list(outbox.regions)} if outbox.owing else {})',
        "{}",
        OWNER_DIES,
    ),
    Mutant(
        "let the next entry's outputs overtake",
        "P5",
        PROCESS,
        "behind = await self.pay_debts(head)\n",
        "behind = ()\n",
        OWNER_DIES,
    ),
    Mutant(
        "overtake in the region that missed one",
        "P5",
        DISPATCH,
        "if r not in entry.behind",
        "if True",
        MISSED_OUTPUT,
    ),
    Mutant(
        "go on paying after a failure",
        "P5",
        DISPATCH,
        "for r in regions if r not in behind",
        "for r in regions",
        MISSED_OUTPUT,
    ),
    Mutant(
        "pay the newest debt first",
        "P5",
        DISPATCH,
        "for owing in in_order(owings):",
        "for owing in reversed(in_order(owings)):",
        DARK_REGION,
    ),
    Mutant(
        "acknowledge what no region took",
        "P6",
        DISPATCH,
        "delivered = await self.delivery.deliver_possible(loaded.outbox)",
        "await self.delivery.deliver_possible(loaded.outbox)\n"
        "            delivered = Delivered(loaded.outbox.regions, {})",
        DARK_REGION,
    ),
    Mutant(
        "let the rescuer raise",
        "P6",
        RESCUE,
        "self.in_turn(help_one, session) for session in names",
        "help_one(session) for session in names",
        RESCUING,
    ),
    Mutant(
        "have no sweep behind the feed",
        "P6",
        RESCUE,
        "self.tried[sought].in_turn(found)[:limit]",
        "[]",
        OWNER_DIES,
    ),
    Mutant(
        "rescue for other regions too",
        "P7",
        RESCUE,
        "self.dispatcher.deliver_in_order(owings, [self.region])",
        "self.dispatcher.deliver_in_order(owings, self.dispatcher.delivery.regions)",
        OWNER_DIES,
    ),
    Mutant(
        "rescue at once instead of after the lag",
        "P7",
        RESCUE,
        "await self.clock.sleep(self.lag_seconds)",
        "await self.clock.sleep(0)",
        OWNER_DIES,
    ),
    Mutant(
        "show both regions a message at once",
        "P7",
        DELIVER,
        "return 0.0 if region == self.preferred_region(session) else self.secondary_delay_seconds",
        "return 0.0",
        PUBLISHING,
    ),
    Mutant(
        "remember every number a producer gave",
        "P8",
        PRODUCER,
        "tuple(known.values())[-max(REMEMBERED_MAX, len(fresh)) :]",
        "tuple(known.values())",
        PUBLISHING,
    ),
    Mutant(
        "drop a fenced message without an entry",
        "P9",
        PROCESS,
        "return await self.commit(step, Ending(entries.refused(entries.opened(step), reason)))",
        "return entries.refused(entries.opened(step), reason)",
        SECOND_PRODUCER,
    ),
    Mutant(
        "forget a parked message",
        "P1",
        CONSUME,
        "await self.drainer.drain(message.session)",
        "pass",
        EARLIER_MISSING,
    ),
    Mutant(
        "park in the worker's memory only",
        "P1",
        BATCH,
        "if entry.status is Status.PARKED and entry.message is not None:",
        "if False:",
        TWIN,
    ),
    Mutant(
        "take a parked message and leave it there",
        "P2",
        BATCH,
        "if entry.from_parked:",
        "if False:",
        EARLIER_MISSING,
    ),
    Mutant(
        "let a halted session go on",
        "P3",
        JOURNAL,
        "if head.halt is not None:\n        return Duplicate()",
        "if False:\n        return Duplicate()",
        DECISIONS,
    ),
    Mutant(
        "advance the cursor on a fault that halts",
        "P3",
        ENTRIES,
        "cursors=entry.cursors if halts else advanced(entry.cursors, number),",
        "cursors=advanced(entry.cursors, number),",
        DECISIONS,
    ),
    Mutant(
        "copy the state into every parked entry",
        "P8",
        ENTRIES,
        "        state=None,\n        state_at=state_position(head),",
        "        state=head.state if head else {},\n        state_at=None,",
        DECISIONS,
    ),
    Mutant(
        "keep a fault in memory only",
        "P9",
        DOCUMENTS,
        '"message": message_json(entry.message) if entry.message and keeps_message else None,',
        '"message": None,',
        HANDLER_FAILS,
    ),
    Mutant(
        "do not tell the error queue",
        "P9",
        PROCESS,
        "return self.dispatcher.delivery.address_all(self.error_queue, [copy])",
        "return self.dispatcher.delivery.address_all(self.error_queue, [copy][:0])",
        HANDLER_FAILS,
    ),
    Mutant(
        "resolve without saying who",
        "P9",
        DOCUMENTS,
        '"resolution": asdict(entry.resolution) if entry.resolution else None,',
        '"resolution": None,',
        "tests/unit/functions/test_http.py",
    ),
)

"""Taking messages, claims and handlers got wrong."""

from tests.mutants.mutant import Mutant, Simulated

SCENARIO = "tests/scenarios/test_when_{}.py".format
CLAIM_DIES = SCENARIO("the_owner_of_a_claim_dies")
HANDLERS = "tests/unit/shared/test_handler.py"
OWNER_DIES = SCENARIO("the_owner_dies_after_commit")
RECEIVING = "tests/unit/functions/test_receive.py"
SLOW = SCENARIO("a_handler_is_slower_than_its_lease")

MUTANTS = (
    Mutant(
        "settle while the message is still being consumed",
        "P1",
        "consume",
        old="_OUTCOME_ = await _CONSUMPTION_",
        new="_OUTCOME_ = AlreadyDone(); __import__('asyncio').ensure_future(_CONSUMPTION_)",
        tests=RECEIVING,
    ),
    Mutant(
        "settle before the journal has it",
        "P1",
        "Consumer.consume",
        old="await self.process_in_turn(_MESSAGE_)",
        new="AlreadyDone()",
        simulated=Simulated(),
    ),
    Mutant(
        "put messages of several sessions into one entry",
        "P2",
        "shared_by",
        old="return _MESSAGE_.session, _A_",
        new="return '', _A_",
        tests=RECEIVING,
    ),
    Mutant(
        "do not drain after a message",
        "P1",
        "Consumer.consume",
        old="await self.drain(_SESSION_)",
        new="None",
        tests=SCENARIO("an_earlier_message_is_missing"),
    ),
    Mutant(
        "forget a parked message",
        "P1",
        "Consumer.drain",
        old="while _A_: _BODY_",
        new="while False: _BODY_",
        simulated=Simulated(),
    ),
    Mutant(
        "take other content under a used number for a copy",
        "P9",
        "compare_content",
        old="_A_ if _B_ == _MESSAGE_.digest else report_conflict(_MESSAGE_)",
        new="_A_",
        tests=SCENARIO("a_number_is_used_again"),
    ),
    Mutant(
        "wait for each message of a batch",
        "P7",
        "Consumer.wait",
        old="_A_ and _IN_TIME_ and not _OTHERS_",
        new="_A_ and _IN_TIME_",
        tests=SCENARIO("a_batch_arrives"),
    ),
    Mutant(
        "do not record a handler that sends nothing",
        "P2",
        "Consumer.give_entry",
        old="await self.committer.commit(_HEAD_, _ENDING_.entry)",
        new="""(
            await self.committer.commit(_HEAD_, _ENDING_.entry)
            if _ENDING_.batches
            else WriteResult.CREATED
        )""",
        tests=OWNER_DIES,
        occurrence=0,
    ),
    Mutant(
        "take what another command was answered",
        "P5",
        "read_reply",
        old="_IDENTITY_.id != _COMMAND_.id",
        new="False",
        tests=SCENARIO("a_command_is_repeated"),
    ),
    Mutant(
        "take a claim over by the worker's own clock",
        "P2",
        "Consumer.wait",
        old="_CLAIM_.is_expired",
        new="_CLAIM_.entry.lease and self.clock.now() > _CLAIM_.entry.lease.seconds",
        tests=SCENARIO("a_workers_clock_is_wrong"),
    ),
    Mutant(
        "count a lease by the worker's own clock",
        "P2",
        "Consumer.wait",
        old="_CLAIM_.is_expired",
        new="_CLAIM_.age_seconds + self.clock.now() % 60 > 6",
        simulated=Simulated(),
    ),
    Mutant(
        "take over a claim that is held",
        "P2",
        "Consumer.wait",
        old="_CLAIM_.is_expired",
        new="True",
        tests=SLOW,
    ),
    Mutant(
        "give a claimed message's copies back to their queue",
        "P7",
        "Consumer.wait",
        old="return Claimed() if _IS_SAME_ else _PARKED_",
        new="""
            if _IS_SAME_:
                raise TimeoutError
            return _PARKED_
        """,
        tests=SLOW,
    ),
    Mutant(
        "never write a claim again",
        "P2",
        "Claims.renew",
        old="await self.clock.sleep(_SECONDS_)",
        new="await self.clock.sleep(_SECONDS_); continue",
        tests=SLOW,
    ),
    Mutant(
        "never renew a claim",
        "P7",
        "Claims.renewed",
        old="self.renew(_CLAIM_)",
        new="asyncio.sleep(0)",
        simulated=Simulated(profile="fair"),
    ),
    Mutant(
        "let whoever parks beside a claim renew it",
        "P6",
        "next_entry.park_beside",
        old="_CLAIM_.lease and replace(_CLAIM_.lease, since=_AT_)",
        new="_CLAIM_.lease",
        tests=CLAIM_DIES,
    ),
    Mutant(
        "forget what was parked beside a claim",
        "P1",
        "Claims.try_to_end",
        old="replace(_ENTRY_, parked=_PARKED_)",
        new="_ENTRY_",
        simulated=Simulated(),
    ),
    Mutant(
        "begin a claim's work without the claim",
        "P2",
        "Claims.try_to_end",
        old="_HELD_ is None or _HELD_.entry.attempt != _CLAIM_.attempt",
        new="_HELD_ is None",
        simulated=Simulated(400),
    ),
    Mutant(
        "let a message kill its owners for ever",
        "P9",
        "Claims.take_over",
        old="_A_ and _HANDLER_ and _B_.tries > _HANDLER_.attempts",
        new="False",
        tests=CLAIM_DIES,
    ),
    Mutant(
        "draw randomness from hash()",
        "P4",
        "Context.random",
        old="random.Random(int.from_bytes(_SEED_, 'big'))",
        new="random.Random(hash(_SEED_))",
        tests=HANDLERS,
    ),
    Mutant(
        "draw randomness from where an object stands in memory",
        "P4",
        "Context.random",
        old="random.Random(int.from_bytes(_SEED_, 'big'))",
        new="random.Random(id(self))",
        simulated=Simulated(),
    ),
    Mutant(
        "seed randomness with hash()",
        "P4",
        "Context.random",
        old="hashlib.sha256(_A_).digest()",
        new="hash(self.message.id).to_bytes(16, 'big', signed=True)",
        tests=HANDLERS,
    ),
    Mutant(
        "give outputs random ids",
        "P4",
        "address_output",
        old="derive_id(*_PARTS_)",
        new="__import__('uuid').uuid4().hex",
        tests=HANDLERS,
        simulated=Simulated(),
    ),
    Mutant(
        "make outputs again on the latest state",
        "P4",
        "Dispatcher.input_of",
        old="self.worker.state_after(_HEAD_)",
        new="self.worker.state_after(await self.journal.head(_HEAD_.session))",
        tests=SCENARIO("outputs_are_made_again"),
    ),
)

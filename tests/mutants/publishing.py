"""Publishing got wrong."""

from tests.mutants.mutant import Mutant, Simulated

SCENARIO = "tests/scenarios/test_when_{}.py".format
ANOTHER_BATCH = SCENARIO("another_batch_follows_an_unknown_send")
NUMBERS = "tests/unit/shared/test_producer_numbers.py"
PUBLISHING = "tests/unit/shared/test_publish.py"
SECOND_PRODUCER = SCENARIO("a_second_producer_takes_over")

MUTANTS = (
    Mutant(
        "send two operations to a session at once",
        "P3",
        "Producer.send",
        old="async with self.locks.of(_SESSION_), self.readiness.required(): _BODY_",
        new="if True: _BODY_",
        tests=PUBLISHING,
    ),
    Mutant(
        "reuse a number for other content",
        "P4",
        "require_same_content",
        old="_BOUND_.digest != _DIGEST_",
        new="False",
        tests=SECOND_PRODUCER,
    ),
    Mutant(
        "give a known message a new number",
        "P4",
        "number_drafts",
        old="_KNOWN_.get(_ID_) or bind_next(*_A_)",
        new="bind_next(*_A_)",
        tests=SECOND_PRODUCER,
    ),
    Mutant(
        "forget which number a message had",
        "P2",
        "number_drafts",
        old="{_A_.id: _A_ for _A_ in _REMEMBERED_}",
        new="{}",
        simulated=Simulated(),
    ),
    Mutant(
        "remember every number a producer gave",
        "P8",
        "number_drafts",
        old="_A_[-max(_LIMIT_, _FRESH_):]",
        new="_A_",
        tests=PUBLISHING,
    ),
    Mutant(
        "remember half of a large operation",
        "P2",
        "number_drafts",
        old="_A_[-max(_LIMIT_, _FRESH_):]",
        new="_A_[-_LIMIT_:]",
        tests=PUBLISHING,
    ),
    Mutant(
        "compare no list of regions",
        "P1",
        "Readiness.agree",
        old="set(_STORED_) == set(_OURS_)",
        new="True",
        tests=SCENARIO("a_second_list_of_regions_appears"),
    ),
    Mutant(
        "number before anybody looked at the queue",
        "P9",
        "Readiness.required",
        old="await self.require_queue()",
        new="None",
        tests=SCENARIO("a_producer_is_misconfigured"),
    ),
    Mutant(
        "keep no idempotency key beside the ledger",
        "P2",
        "number_drafts",
        old="KeptKeys(_BOUNDS_, _SECONDS_)",
        new="NO_KEYS",
        tests=SCENARIO("an_idempotency_key_is_repeated"),
    ),
    Mutant(
        "number a kept key anew once it was refused",
        "P2",
        "LedgerBook.add_kept",
        old="await self.journal.key(_SESSION_, _GROUP_, _ID_)",
        new="None",
        tests=SCENARIO("an_idempotency_key_is_repeated"),
    ),
    Mutant(
        "let numbers run over their end",
        "P2",
        "bind_next",
        old="_SEQUENCE_ > SEQUENCE_MAX",
        new="False",
        tests=NUMBERS,
    ),
    Mutant(
        "take a caller's starting number on trust",
        "P2",
        "take_over_ledger",
        old="_START_ is not None and _START_ not in _EXPECTED_",
        new="False",
        tests=NUMBERS,
    ),
    Mutant(
        "number messages without storing them",
        "P1",
        "LedgerBook.save",
        old="self.journal.save_ledger(_SESSION_, _LEDGER_, _EXPECTED_, _OUTBOX_, _KEYS_)",
        new="self.journal.save_ledger(_SESSION_, _LEDGER_, _EXPECTED_, keys=_KEYS_)",
        tests=SCENARIO("a_publish_is_cut_short"),
    ),
    Mutant(
        "reuse a number after an unknown send",
        "P1",
        "LedgerBook.save",
        old="await self.journal.save_ledger(_SESSION_, _LEDGER_, _EXPECTED_, _OUTBOX_, _KEYS_)",
        new="_EXPECTED_ or '1'",
        simulated=Simulated(),
    ),
    Mutant(
        "send newer messages before what was left unsent",
        "P3",
        "LedgerBook.recall",
        old="await self.settle(_SESSION_, _GROUP_)",
        new="False",
        tests=ANOTHER_BATCH,
    ),
    Mutant(
        "skip the settling of what another process numbered",
        "P1",
        "LedgerBook.bind",
        old="_A_ and _B_ and await self.settle(_SESSION_, _GROUP_)",
        new="False",
        tests=PUBLISHING,
    ),
    Mutant(
        "trust what a failed publish left in memory",
        "P1",
        "Producer.publish",
        old="self.ledgers.remembered.pop(*_A_)",
        new="None",
        tests=ANOTHER_BATCH,
    ),
    Mutant(
        "call a publish done that no region took",
        "P1",
        "LedgerBook.deliver",
        old="not _REGIONS_",
        new="False",
        tests=ANOTHER_BATCH,
        occurrence=0,
    ),
    Mutant(
        "send again what is known to be sent",
        "P7",
        "Producer.publish_in_turn",
        old="not _NUMBERED_.fresh",
        new="False",
        tests=PUBLISHING,
    ),
    Mutant(
        "notify of success only when it is acknowledged",
        "P9",
        "LedgerBook.deliver",
        old="""
            if _IS_SAFE_:
                _NOTIFY_
            try:
                _ACKNOWLEDGE_
            except _ERRORS_ as _ERROR_:
                _REPORT_
        """,
        new="""
            try:
                _ACKNOWLEDGE_
            except _ERRORS_ as _ERROR_:
                _REPORT_
            if _IS_SAFE_:
                _NOTIFY_
        """,
        tests=SCENARIO("a_send_is_cancelled"),
    ),
    Mutant(
        "call a message published that was replaced by a tombstone",
        "P9",
        "Producer.publish_in_turn",
        old="if _LEFT_.refused: _BODY_",
        new="",
        tests=PUBLISHING,
    ),
    Mutant(
        "call a message published that became a tombstone meanwhile",
        "P9",
        "LedgerBook.settle",
        old="any(_A_)",
        new="False",
        tests=PUBLISHING,
    ),
    Mutant(
        "know what became a tombstone as sent",
        "P1",
        "LedgerBook.deliver",
        old="await self.forget(*_A_)",
        new="None",
        tests=PUBLISHING,
    ),
    Mutant(
        "use a session whose number contradicted the ledger",
        "P9",
        "IdempotentProducer.verify_options",
        old="self.broken[_SESSION_] = _ERROR_",
        new="",
        tests="tests/contract/test_publishing_on_the_twin.py",
    ),
)

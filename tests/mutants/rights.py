"""Who may say what, got wrong: each found by the strangers' own tests."""

from functools import partial

from tests.mutants.mutant import Mutant

Heard = partial(Mutant, tests="tests/scenarios/test_when_a_stranger_speaks.py")
Called = partial(Mutant, tests="tests/unit/functions/test_access.py")
Erased = partial(Mutant, tests="tests/scenarios/test_when_a_person_is_erased.py")
Told = partial(Mutant, tests="tests/unit/shared/test_telemetry.py")

MUTANTS = (
    Heard(
        "let ingest say what only the app may",
        "P9",
        "ingest.read_request",
        old="refuse_reserved(_MESSAGE_.session, _MESSAGE_.type)",
        new="pass",
    ),
    Heard(
        "take from the queue what only the app may say",
        "P9",
        "from_properties",
        old="refuse_reserved(_MESSAGE_.session, _TYPE_)",
        new="pass",
    ),
    Heard(
        "take other content under a step's id for the step",
        "P5",
        "is_step_of",
        old="_RECORDED_.digest == _COMMAND_.digest",
        new="True",
    ),
    Heard(
        "let a stranger's message stop its session",
        "P9",
        "HandlerRunner.fail",
        old="_HALTS_ and not _IS_STRANGE_",
        new="_HALTS_",
    ),
    Heard(
        "let a type without sessions write to those of another model",
        "P2",
        "Handlers.of",
        old="_HANDLER_.state == _OTHER_.state or _HANDLER_.state.model is NoState",
        new="True",
    ),
    Heard(
        "publish as ingest at the lowest owner level",
        "P1",
        "ingest.PRODUCER",
        old="ProducerOptions(HTTP_GROUP, owner_level=OWNER_LEVEL_MAX, is_ingest=True)",
        new="ProducerOptions(HTTP_GROUP, owner_level=0, is_ingest=True)",
    ),
    Heard(
        "let a fenced producer go on without being told",
        "P9",
        "Parking.fence_ledger",
        old="_STORED_.ledger.level < _LEVEL_",
        new="False",
    ),
    Heard(
        "forget what a fenced producer sent",
        "P1",
        "Parking.commit_refusal",
        old="replace(_ENTRY_, message=_MESSAGE_, outbox=_REPORTS_, alert=_REASON_)",
        new="_ENTRY_",
    ),
    Heard(
        "show nobody what a stranger said",
        "P9",
        "HandlerRunner.fail",
        old="_REASON_ if _IS_STRANGE_ else None",
        new="None",
    ),
    Heard(
        "fail on a tombstone that is nested deeply",
        "P9",
        "explain_tombstone",
        old="(ValueError, AttributeError, RecursionError)",
        new="(ValueError, AttributeError)",
    ),
    Heard(
        "repeat control characters in reasons",
        "P9",
        "shorten",
        old="UNPRINTABLE.sub(escape_character, _REASON_)",
        new="_REASON_",
    ),
    Called(
        "believe a token's header where nobody checks tokens",
        "P9",
        "authenticate",
        old="_AUTHENTICATION_ is Authentication.KEYS",
        new="PRINCIPAL not in _HEADERS_",
    ),
    Called(
        "start where nobody checks tokens",
        "P9",
        "connect",
        old="settings.require_checked_tokens()",
        new="pass",
    ),
    Called(
        "open every route to whoever shows a token",
        "P9",
        "require_right",
        old="_RIGHT_ not in _PRINCIPAL_.roles",
        new="False",
    ),
    Called(
        "believe the body about who decided",
        "P9",
        "read_resolution",
        old="said['who'] = _PRINCIPAL_.name",
        new="said.setdefault('who', _PRINCIPAL_.name)",
    ),
    Erased(
        "leave what was before an erased state",
        "P9",
        "Resolver.erase",
        old="_ONE_.entry.position < _ENTRY_.position",
        new="False",
    ),
    Erased(
        "begin to count anew after erasing",
        "P2",
        "next_entry.erase",
        old="replace(entry, state=None, model=None, reminders={})",
        new="replace(entry, state=None, model=None, reminders={}, cursors={})",
    ),
    Erased(
        "erase what waits with what it needs",
        "P1",
        "Resolver.erase",
        old="await self.require_settled(session, head)",
        new="pass",
    ),
    Told(
        "let each worker give the effect an id of its own",
        "P4",
        "Trace.of",
        old="derive_id('effect', *message.identity_parts)[:16]",
        new="__import__('secrets').token_hex(8)",
    ),
    Told(
        "let a trace change what outputs made again are compared by",
        "P4",
        "digest_batches",
        old="message.pop('traceparent', None)",
        new="None",
    ),
)

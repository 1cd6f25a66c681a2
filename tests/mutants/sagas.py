"""Sagas got wrong, each found by the simulation of orders."""

from functools import partial

from tests.mutants.mutant import Mutant, Simulated

Orders = partial(Simulated, scenario="orders")

MUTANTS = (
    Mutant(
        "give a step up without a tombstone",
        "P5",
        "SagaSteps.give_up",
        old="await self.in_time(_STEP_, self.settled(_MESSAGE_, void_of(_MESSAGE_, _REASON_)))",
        new="await self.recorded(_MESSAGE_) or Reply(outcome=Outcome.REFUSED, reason=_REASON_)",
        simulated=Orders(),
    ),
    Mutant(
        "let time be up for one region only",
        "P5",
        "SagaBook.decide",
        old="""
            await self.say(event_message(_KEY_, _WAITED_.timeout, _NOW_))
            _RECORD_ = await self.started(_KEY_)
        """,
        new="return Events(_WAITED_.timeout, _RECORD_.events)",
        simulated=Orders(400),
    ),
    Mutant(
        "undo the first stage first",
        "P3",
        "compensate",
        old="reversed(_PROGRESS_.done)",
        new="_PROGRESS_.done",
        simulated=Orders(),
    ),
    Mutant(
        "name a step's command after the region that walks",
        "P2",
        "SagaSteps.apply",
        old="_MESSAGE_ = step_message(*_A_)",
        new="""
            _MESSAGE_ = step_message(*_A_)
            region = self.commands.consumer.committer.owner.region
            _MESSAGE_ = replace(_MESSAGE_, id=f"{_MESSAGE_.id[:20]}-{region}")
        """,
        simulated=Orders(),
    ),
    Mutant(
        "undo a step under its own command's id",
        "P5",
        "step_id",
        old="derived_id('saga', _KEY_, _NAME_, _DIRECTION_)",
        new="derived_id('saga', _KEY_, _NAME_)",
        simulated=Orders(),
    ),
    Mutant(
        "let an event change a saga that is over",
        "P2",
        "saga_record.refusal",
        old="_RECORD_.state.is_end",
        new="False",
        simulated=Orders(),
    ),
    Mutant(
        "start a saga again with other content",
        "P2",
        "saga_record.started",
        old="_RECORD_.digest is not None",
        new="_RECORD_.state.is_end",
        simulated=Orders(),
    ),
    Mutant(
        "forget events that came before the start",
        "P1",
        "saga_record.started",
        old="_RECORD_.model_copy(update=_BEGUN_)",
        new="_RECORD_.model_copy(update={**_BEGUN_, 'events': ()})",
        simulated=Orders(),
    ),
    Mutant(
        "skip the compensation of a step without an answer",
        "P5",
        "take",
        old="dict(zip([_STEP_.name for _STEP_ in _SILENT_], _GIVEN_UP_, strict=True))",
        new="{_STEP_.name: Reply(outcome=Outcome.REFUSED) for _STEP_ in _SILENT_}",
        simulated=Orders(),
    ),
    Mutant(
        "give up beyond the point of no return",
        "P5",
        "walk",
        old="_PLACE_ <= _SAGA_.plan.turn",
        new="True",
        simulated=Orders(400),
    ),
    Mutant(
        "call a saga compensated whose compensation failed",
        "P5",
        "compensate",
        old="not {Outcome.UNKNOWN, Outcome.KEPT} & _OUTCOMES_",
        new="True",
        simulated=Orders(),
    ),
    Mutant(
        "take a refusal for done",
        "P5",
        "reply_of",
        old="Outcome.DONE if _REFUSED_ is None else Outcome.REFUSED",
        new="Outcome.DONE",
        simulated=Orders(),
    ),
    Mutant(
        "say that a saga is cancelled which is past its turn",
        "P5",
        "SagaBook.cancel",
        old="_REPLY_.outcome is not Outcome.REFUSED",
        new="_REPLY_ is None",
        simulated=Orders(),
    ),
    Mutant(
        "cancel without a tombstone",
        "P5",
        "SagaBook.cancel",
        old="""
            _REPLY_ = await self.steps.give_up(_KEY_, _AT_, _STEP_, CANCELLED)
            if _REPLY_.outcome is not Outcome.REFUSED:
                _BODY_
        """,
        new="""
            _REPLY_ = await self.steps.recorded(step_message(_KEY_, _AT_, _STEP_, Direction.DO))
            if _REPLY_ is not None and _REPLY_.outcome is not Outcome.REFUSED:
                _BODY_
        """,
        simulated=Orders(150),
    ),
    Mutant(
        "ask for something else at a replay",
        "P4",
        "step_call",
        old="{'key': _KEY_, 'at': _AT_, 'step': _STEP_, 'direction': _DIRECTION_}",
        new="""{
            'key': _KEY_,
            'at': _AT_,
            'step': _STEP_,
            'direction': _DIRECTION_,
            'new': id(object()),
        }""",
        simulated=Orders(),
    ),
    Mutant(
        "forget to try again",
        "P6",
        "policy",
        old="_CALL_.tries",
        new="1",
        simulated=Orders(),
    ),
    Mutant(
        "leave a saga to the other region for ever",
        "P6",
        "orchestrate",
        old="_FOUND_ if isinstance(_FOUND_, State) else _WALK_",
        new="_FOUND_ if isinstance(_FOUND_, State) else State.COMPENSATING",
        simulated=Orders(),
    ),
    Mutant(
        "move the feed on although the task hub was away",
        "P6",
        "begin",
        old="ensure(_HUB_, started(_KEY_, _RECORD_), _SECONDS_)",
        new="left_to_the_feed(_KEY_, ensure(_HUB_, started(_KEY_, _RECORD_), _SECONDS_))",
        simulated=Orders(),
    ),
)

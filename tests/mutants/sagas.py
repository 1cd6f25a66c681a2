"""Sagas got wrong, each found by the simulation of orders."""

from functools import partial

from tests.mutants.mutant import Mutant, Simulated

Orders = partial(Simulated, scenario="orders")

MUTANTS = (
    Mutant(
        "give a step up without a tombstone",
        "P5",
        "SagaSteps.give_up",
        old="await self.perform(_WORK_, give_up=_REASON_)",
        new="""
            interpret(
                await read_reply(
                    self.journal,
                    step_message(
                        _WORK_['key'],
                        _WORK_['at'],
                        Step.model_validate(_WORK_['step']),
                        Direction.DO,
                    ),
                )
                or Failed(_REASON_)
            ).model_dump(mode='json')
        """,
        simulated=Orders(),
    ),
    Mutant(
        "let time be up for one region only",
        "P5",
        "Sagas.decide",
        old="""
            await self.apply(event_message(_KEY_, _WAITED_.timeout, _NOW_))
            _RECORD_ = await self.started_record(_KEY_)
        """,
        new="return WaitEvents(_WAITED_.timeout, _RECORD_.events)",
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
        "SagaSteps.perform",
        old="_COMMAND_ = step_message(*_A_)",
        new="""
            _COMMAND_ = step_message(*_A_)
            region = self.commands.worker.owner.region
            _COMMAND_ = replace(_COMMAND_, id=f"{_COMMAND_.id[:20]}-{region}")
        """,
        simulated=Orders(),
    ),
    Mutant(
        "undo a step under its own command's id",
        "P5",
        "step_id",
        old="derive_id('saga', _KEY_, _NAME_, _DIRECTION_)",
        new="derive_id('saga', _KEY_, _NAME_)",
        simulated=Orders(),
    ),
    Mutant(
        "let an event change a saga that is over",
        "P2",
        "record.explain_refusal",
        old="_RECORD_.state.is_end",
        new="False",
        simulated=Orders(1000),
    ),
    Mutant(
        "start a saga again with other content",
        "P2",
        "start_saga",
        old="_RECORD_.digest is not None",
        new="_RECORD_.state.is_end",
        simulated=Orders(),
    ),
    Mutant(
        "forget events that came before the start",
        "P1",
        "start_saga",
        old="_RECORD_.model_copy(update=_BEGUN_)",
        new="_RECORD_.model_copy(update={**_BEGUN_, 'events': ()})",
        simulated=Orders(),
    ),
    Mutant(
        "skip the compensation of a step without an answer",
        "P5",
        "take",
        old="dict(zip([_STEP_.name for _STEP_ in _SILENT_], _GIVEN_UP_, strict=True))",
        new="{_STEP_.name: StepReply(outcome=StepOutcome.REFUSED) for _STEP_ in _SILENT_}",
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
        old="not {StepOutcome.UNKNOWN, StepOutcome.KEPT} & _OUTCOMES_",
        new="True",
        simulated=Orders(),
    ),
    Mutant(
        "take a refusal for done",
        "P5",
        "interpret",
        old="StepOutcome.DONE if _REFUSED_ is None else StepOutcome.REFUSED",
        new="StepOutcome.DONE",
        simulated=Orders(),
    ),
    Mutant(
        "say that a saga is cancelled which is past its turn",
        "P5",
        "Sagas.cancel",
        old="_REPLY_.outcome is not StepOutcome.REFUSED",
        new="_REPLY_ is None",
        simulated=Orders(),
    ),
    Mutant(
        "cancel without a tombstone",
        "P5",
        "Sagas.cancel",
        old="""
            _REPLY_ = StepReply.model_validate(
                await self.steps.perform(_WORK_, give_up=CANCELLED)
            )
        """,
        new="""
            found = await read_reply(
                self.worker.journal,
                step_message(
                    _WORK_['key'],
                    _WORK_['at'],
                    Step.model_validate(_WORK_['step']),
                    Direction.DO,
                ),
            )
            _REPLY_ = interpret(found) if found else StepReply(outcome=StepOutcome.REFUSED)
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
        "retry_policy_of",
        old="_CALL_.tries",
        new="1",
        simulated=Orders(),
    ),
    Mutant(
        "leave a saga to the other region for ever",
        "P6",
        "orchestrate",
        old="_FOUND_ if isinstance(_FOUND_, SagaState) else _WALK_",
        new="_FOUND_ if isinstance(_FOUND_, SagaState) else SagaState.COMPENSATING",
        simulated=Orders(),
    ),
    Mutant(
        "move the feed on although the task hub was away",
        "P6",
        "begin_instances",
        old="ensure_instance(_HUB_, start_of(_KEY_, _RECORD_), _SECONDS_)",
        new="try_now(_KEY_, ensure_instance(_HUB_, start_of(_KEY_, _RECORD_), _SECONDS_))",
        simulated=Orders(seeds_max=400),
    ),
)

"""Ways in which sagas are got wrong, each found by the simulation of the orders."""

from functools import partial

from tests.simulation.mutations import Mutation

Saga = partial(Mutation, play="orders")

SAGA_MUTATIONS = (
    Saga(
        "give a step up without a void",
        "P5",
        "shared.usecases.saga_steps",
        "return await self.in_time(step, self.settled(message, void_of(message, reason)))",
        "return await self.recorded(message) or Reply(outcome=Outcome.REFUSED, reason=reason)",
    ),
    Saga(
        "let time be up for one region only",
        "P5",
        "shared.usecases.saga_book",
        "await self.say(event_message(key, waited.timeout, self.now))",
        "return Events(waited.timeout, record.events)",
        seeds_max=400,
    ),
    Saga(
        "undo the first stage first",
        "P3",
        "shared.domain.saga_walk",
        "for steps in reversed(progress.done):",
        "for steps in progress.done:",
    ),
    Saga(
        "name a step's command after the region that walks",
        "P2",
        "shared.usecases.saga_steps",
        "message = step_message(key, at, step, direction)\n",
        "message = step_message(key, at, step, direction)\n"
        "        region = self.commands.consumer.committer.owner.region\n"
        "        message = replace(message, id=f'{message.id[:20]}-{region}')\n",
    ),
    Saga(
        "undo a step under its own command's id",
        "P5",
        "shared.domain.saga",
        'return derived_id("saga", key, name, direction.value)',
        'return derived_id("saga", key, name)',
    ),
    Saga(
        "let an event change a saga that is over",
        "P2",
        "shared.domain.saga_record",
        "    if record.state.is_end:\n        return f",
        "    if record.state is None:\n        return f",
    ),
    Saga(
        "start a saga again with other content",
        "P2",
        "shared.domain.saga_record",
        "if record.digest is not None:",
        "if record.state.is_end:",
    ),
    Saga(
        "forget events that came before the start",
        "P1",
        "shared.domain.saga_record",
        '"plan": plan(),',
        '"plan": plan(),\n        "events": (),',
    ),
    Saga(
        "skip the compensation of a step without an answer",
        "P5",
        "shared.domain.saga_walk",
        "settled = dict(zip([step.name for step in silent], given_up, strict=True))",
        "settled = {step.name: Reply(outcome=Outcome.REFUSED) for step in silent}",
    ),
    Saga(
        "give up beyond the point of no return",
        "P5",
        "shared.domain.saga_walk",
        "can_turn=place <= saga.plan.turn)",
        "can_turn=True)",
        seeds_max=400,
    ),
    Saga(
        "call a saga compensated whose compensation failed",
        "P5",
        "shared.domain.saga_walk",
        "is_clean = not {Outcome.UNKNOWN, Outcome.KEPT} & set(progress.outcomes.values())",
        "is_clean = True",
    ),
    Saga(
        "take a refusal for done",
        "P5",
        "shared.usecases.saga_steps",
        "outcome = Outcome.DONE if refused is None else Outcome.REFUSED",
        "outcome = Outcome.DONE",
    ),
    Saga(
        "say that a saga is cancelled which is past its turn",
        "P5",
        "shared.usecases.saga_book",
        "if reply.outcome is not Outcome.REFUSED:",
        "if reply is None:",
    ),
    Saga(
        "cancel without a void",
        "P5",
        "shared.usecases.saga_book",
        "reply = await self.steps.give_up(key, record.at, step, CANCELLED)\n"
        "        if reply.outcome is not Outcome.REFUSED:",
        "reply = await self.steps.recorded(step_message(key, record.at, step, Direction.DO))\n"
        "        if reply is not None and reply.outcome is not Outcome.REFUSED:",
        seeds_max=150,
    ),
    Saga(
        "ask for something else at a replay",
        "P4",
        "shared.domain.saga_walk",
        '"direction": direction.value,',
        '"direction": direction.value,\n        "new": id(object()),',
    ),
    Saga(
        "forget to try again",
        "P6",
        "functions.saga_drive",
        "max_number_of_attempts=call.tries,",
        "max_number_of_attempts=1,",
    ),
    Saga(
        "leave a saga to the other region for ever",
        "P6",
        "shared.domain.saga_walk",
        "return found if isinstance(found, State) else (yield from walk(found, stand_by_seconds))",
        "return found if isinstance(found, State) else State.COMPENSATING",
    ),
    Saga(
        "move the feed on although the task hub was away",
        "P6",
        "functions.saga_instances",
        "await ensure(hub, started(key, record), stands_by)",
        "await left_to_the_feed(key, ensure(hub, started(key, record), stands_by))",
    ),
)

"""The agent of the page about agents, with a stand-in for its model in the form of a chat API."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.engine.consume.outcomes import Faulted, Processed
from shared.testkit import exercise, given
from shared.testkit.given import as_sent
from tests.business import OrderedClock
from tests.docs.pages import page
from tests.world import World

CHAT = "chat:7"
GREETING = given(CHAT, "chat.say", {"text": "My book came torn."})


def call(at: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {
        "id": f"call-{at}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }


def turn(*calls: Mapping[str, Any], text: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **({"tool_calls": [*calls]} if calls else {})}


def model_of(*answers: Mapping[str, Any]) -> Callable[..., Any]:
    """A model that answers by how much it has said already, and the last answer again."""

    async def ask_model(turns: list[dict[str, Any]], *, key: str) -> dict[str, Any]:
        assert key
        open_calls = {c["id"] for t in turns for c in t.get("tool_calls", ())}
        # As chat APIs do, which refuse a conversation in which a call was not answered.
        assert open_calls == {t["tool_call_id"] for t in turns if t["role"] == "tool"}
        said = sum(t["role"] == "assistant" for t in turns)
        return dict(answers[min(said, len(answers) - 1)])

    return ask_model


REFUND = turn(call("a", "refund", order="12", cents=700))
LETTER = turn(call("b", "send_letter", text="Sorry."))
DONE = turn(text="You have your money back.")


@pytest.fixture
def program() -> dict[str, Any]:
    return page("docs/agents.md").run()


def told(state: Mapping[str, Any]) -> list[str]:
    """What the model was told by tools and people."""
    return [t["content"] for t in state["turns"] if t["role"] == "tool"]


@pytest.mark.slow
def test_whatever_happens_each_tool_that_acts_is_called_once(program: dict[str, Any]) -> None:
    handlers = program["build_handlers"](model_of(REFUND, LETTER, DONE))
    report = exercise(handlers, [GREETING], runs_max=100)

    assert report.outputs("chat.said") == [{"text": "You have your money back."}]
    assert told(report.state(CHAT)) == ['{"refunded": 700}', '{"sent": true}']
    # The model may be asked twice; what acts may not.
    assert set() < report.repeated <= {"model 0", "model 1", "model 2"}


async def test_a_call_that_cannot_be_made_is_told_to_the_model(program: dict[str, Any]) -> None:
    wrong = [
        call("a", "delete_everything"),
        call("b", "refund", order="12", cents=1_000_000),
        {"id": "call-c", "function": {"name": "refund", "arguments": "{"}},
    ]
    world = World(handlers=program["build_handlers"](model_of(turn(*wrong), DONE)))
    (message,) = as_sent([GREETING])
    assert isinstance(await world.east.consumer.consume(message), Processed)

    (entry,) = world.entries(CHAT)
    first, second, third = told(entry["state"])
    assert first == "there is no tool 'delete_everything'; there are refund, send_letter"
    assert "less than or equal to 10000" in second
    assert third.startswith("not called: ")
    assert [one["name"] for one in entry["steps"]] == ["model 0", "model 1"]
    assert program["refunds"] == {}


async def test_a_model_that_goes_in_circles_ends(program: dict[str, Any]) -> None:
    world = World(handlers=program["build_handlers"](model_of(REFUND)))
    (message,) = as_sent([GREETING])
    await world.east.consumer.consume(message)

    (entry,) = world.entries(CHAT)
    assert [one["name"] for one in entry["steps"]] == [
        name for n in range(6) for name in (f"model {n}", f"tool {n}.0")
    ]
    assert entry["state"]["turns"][-1]["content"].startswith("I could not find an answer.")


async def test_a_person_answers_the_model_by_a_message(program: dict[str, Any]) -> None:
    asks = turn(call("a", "ask_person", question="May I?"), call("b", "refund", order="1", cents=5))
    world = World(handlers=program["build_handlers"](model_of(asks, DONE)))
    messages = [
        GREETING,
        given(CHAT, "chat.say", {"text": "Hello?"}),
        given(CHAT, "chat.answer", {"text": "You may."}),
        given(CHAT, "chat.answer", {"text": "Once more."}),
    ]
    for message in as_sent(messages):
        assert isinstance(await world.east.consumer.consume(message), Processed)

    states = [entry["state"] for entry in world.entries(CHAT)]
    assert [state["waits_for"] for state in states] == ["call-a", "call-a", None, None]
    last = states[-1]["turns"]
    assert [t["role"] for t in last] == ["user", "assistant", "tool", "tool", "user", "assistant"]
    assert told(states[-1]) == ["You may.", '{"refunded": 5}']
    assert list(program["refunds"].values()) == [5]


@pytest.mark.parametrize("did", [True, False])
async def test_when_a_letter_may_be_on_its_way_a_person_says_so_and_the_model_goes_on(
    program: dict[str, Any], *, did: bool
) -> None:
    letters: list[str] = []

    async def send_letter(wanted: dict[str, Any], *, key: str) -> dict[str, Any]:
        letters.append(key)
        if len(letters) == 1:
            raise ConnectionResetError("gone")
        return {"sent": True}

    arguments, _, policy = program["TOOLS"]["send_letter"]
    program["TOOLS"]["send_letter"] = (arguments, send_letter, policy)
    model = model_of(REFUND, LETTER, DONE)
    world = World(OrderedClock(), handlers=program["build_handlers"](model))
    (message,) = as_sent([GREETING])
    assert isinstance(await world.east.consumer.consume(message), Faulted)
    assert world.entries(CHAT)[-1]["unknown"] == ["tool 1.0"]

    action = ResolutionAction.HAPPENED if did else ResolutionAction.NOT_HAPPENED
    body = b'{"sent": true}' if did else None
    decision = ResolutionRequest(action, "Ada", "the post says so", body, step="tool 1.0")
    await world.west.resolver.resolve(CHAT, decision)

    entry = world.entries(CHAT)[-1]
    assert told(entry["state"]) == ['{"refunded": 700}', '{"sent": true}']
    assert len(letters) == (1 if did else 2)
    assert len(program["refunds"]) == 1

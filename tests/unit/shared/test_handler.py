"""Handlers are found by type, run purely, and answer with the same bytes every time."""

import os
import subprocess
import sys

import pytest
from pydantic import BaseModel

from shared.domain.errors import InvalidBody, UnknownType
from shared.domain.handler import Context, HandlerInput, Handlers
from shared.domain.message import Message, Number
from shared.engine.handle.handle import run_pure
from tests.world import Account, Amount, handlers, message


def test_an_unknown_type_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(UnknownType, match=r"account\.add"):
        handlers.of("account.melt")


def test_two_handlers_for_a_type_are_refused() -> None:
    others = Handlers()
    others.register("account.add", state=Account, body=Amount)(lambda account, _, __: account)

    with pytest.raises(ValueError, match="two handlers"):
        Handlers.joined([handlers, others])


@pytest.mark.parametrize("body", [b"not json", b'{"amount":"x"}', b"[]"])
def test_a_body_that_is_not_the_model_is_refused(body: bytes) -> None:
    broken = Message("m", "acc-7", "account.add", body, Number("bank", 0, 0))

    with pytest.raises(InvalidBody, match="message 'm'"):
        run_pure(handlers.of("account.add"), HandlerInput(), broken)


def test_outputs_continue_the_sessions_own_numbering() -> None:
    before = HandlerInput({"amounts": [5]}, {"": {"acc-7": 3}})

    result = run_pure(handlers.of("account.bill"), before, message(0))

    (receipt,) = result.batches[0].messages
    assert receipt.number == Number("session:acc-7", 0, 3)
    assert result.produced == {"": {"acc-7": 4}}
    assert result.state == {"amounts": [5, 1]}


def test_running_again_in_another_process_gives_the_same_bytes() -> None:
    program = (
        "from tests.world import handlers, message\n"
        "from shared.domain.handler import HandlerInput\n"
        "from shared.engine.handle.handle import run_pure\n"
        "print(run_pure(handlers.of('account.bill'), HandlerInput(), message(0)))"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(runs) == 1
    assert (
        str(run_pure(handlers.of("account.bill"), HandlerInput(), message(0))).encode()
        in runs.pop()
    )


def test_the_context_repeats_itself_for_the_same_message_only() -> None:
    one, again, other = Context(message(0)), Context(message(0)), Context(message(1))

    assert [one.new_id(), one.new_id()] == [again.new_id(), again.new_id()]
    assert one.random.random() == again.random.random() != other.random.random()
    assert one.new_id() != other.new_id()


def test_now_is_the_senders_time_and_missing_without_one() -> None:
    timed = Message("m", "s", "t", b"{}", time="2013-01-01T05:17:00")

    assert Context(timed).now.hour == 5
    with pytest.raises(InvalidBody, match="no time"):
        _ = Context(message(0)).now


def test_a_first_message_meets_the_models_defaults() -> None:
    class Counter(BaseModel):
        count: int = 0

    counting = Handlers()

    @counting.register("count", state=Counter, body=Counter)
    def count(counter: Counter, _: Counter, __: Context) -> Counter:
        return Counter(count=counter.count + 1)

    first = run_pure(counting.of("count"), HandlerInput(), Message("m", "s", "count", b"{}"))

    assert first.state == {"count": 1}

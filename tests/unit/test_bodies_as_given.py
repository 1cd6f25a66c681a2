"""A body that a person or a file gives is passed on as it was given: every digit, no name twice."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cli.decide import ChosenStandstill, carry_out_one, read_body_option
from cli.failures import Misuse
from cli.send import parse_line
from functions.http.operate import ResolutionBody, carry_out
from functions.http.requests import read_decision
from functions.page.decisions import read_choice
from functions.page.error_queue import read_error_form
from shared.domain.errors import InvalidBody
from shared.domain.json_text import keep_json, split_object, write_object
from tests.asking import ask, document
from tests.scenarios.test_when_numbers_have_many_digits import Trade
from tests.world import World, message

GIVEN = '{"rate": 12345678901234567.89,  "price":1.10, "ticks": 1e2, "ä": "\\u00e4"}'
# What would come of it, were it read and written anew.
assert json.dumps(json.loads(GIVEN)) != GIVEN
REPEATED = ['{"a": 1, "a": 2}', '[{"b": {"c": 1, "c": 1}}]']


@pytest.mark.parametrize("text", [GIVEN, "1.10", "-0.0", '" x "', "[]", "null", "1" * 5_000])
def test_json_is_kept_as_it_was_given(text: str) -> None:
    around = f' {{"first" :{text} , "body":\t{text}\n,"a\\u0062": {text}}} '

    assert keep_json(f" {text}\n") == text
    assert split_object(around) == {"first": text, "body": text, "ab": text}
    assert write_object({"n": 1, "body": keep_json(text)}) == f'{{"n": 1, "body": {text}}}'
    assert split_object(write_object({"x": text})) == {"x": json.dumps(text)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Expecting value"),
        ("{} {}", "Extra data"),
        ('1, "action": "erase"', "Extra data"),
        ("NaN", "NaN is no JSON"),
        ("[-Infinity]", "-Infinity is no JSON"),
        *((text, "is there twice") for text in REPEATED),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_json_or_says_a_name_twice_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        keep_json(text)
    with pytest.raises(ValueError, match=f"{said}|no object|property name|Expecting"):
        split_object(text)


@pytest.mark.parametrize("text", ["1", "[]", '"{}"', "null"])
def test_what_is_no_object_has_no_members(text: str) -> None:
    with pytest.raises(ValueError, match="it is no object"):
        split_object(text)


async def test_an_edited_message_has_the_bytes_that_a_person_gave() -> None:
    world = World()
    await world.east.consumer.consume(message(0, kind="account.burn"))
    given = '{"amount":1.0,  "note": 12345678901234567.89}'
    asked = f'{{"action": "edit", "who": "Ada", "why": "a typo", "body": {given}}}'

    response = await carry_out(world.east, ask(asked, route={"session": "acc-7"}))

    # It fails again, and so is kept whole.
    assert document(response)["entry"]["status"] == "faulted"
    assert world.entries()[-1]["message"]["body"] == given


@pytest.mark.parametrize("body", REPEATED)
async def test_a_decision_that_says_a_name_twice_is_refused(body: str) -> None:
    asked = f'{{"action": "edit", "who": "Ada", "why": "x", "body": {body}}}'

    with pytest.raises(InvalidBody, match="is there twice"):
        read_decision(ResolutionBody, asked.encode(), None)
    twice = b'{"action": "skip", "who": "A", "why": "x", "why": "y"}'
    with pytest.raises(InvalidBody, match="the name 'why' is there twice"):
        read_decision(ResolutionBody, twice, None)


def form(**more: str) -> dict[str, str]:
    return {"who": "Ada", "why": "a typo", **more}


def test_the_page_passes_a_body_on_as_it_was_given() -> None:
    choice = json.dumps({"session": "s", "verbs": [{"action": "edit", "at": 4}]})
    fields = {name: [value] for name, value in form(body=GIVEN).items()}
    east, request = World().east, ask()

    edited = read_choice(choice, "edit", fields, None).request
    again = read_error_form(form(session="s", report="r", sequence="3", body=GIVEN), east, request)

    assert (edited.body, again.body) == (GIVEN.encode(), GIVEN.encode())
    for body in (*REPEATED, '1, "at": 0', "NaN"):
        wrong = form(session="s", report="r", sequence="3", body=body)
        with pytest.raises(InvalidBody, match="body: "):
            read_choice(choice, "edit", fields | {"body": [body]}, None)
        with pytest.raises(InvalidBody, match="body or sequence: "):
            read_error_form(wrong, east, request)


def test_the_command_line_passes_a_body_on_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "body").write_text(f"\n{GIVEN}\n", encoding="utf-8")
    line = f'{{"session": "s", "type": "t", "body": {GIVEN}}}'

    for option in (GIVEN, f"@{tmp_path / 'body'}"):
        assert read_body_option(option) == {"body": GIVEN}
    assert parse_line(1, line).body == GIVEN.encode()
    # A file that was begun by an earlier release goes on under the same ids.
    other = line.replace(GIVEN, json.dumps(json.loads(GIVEN)))
    assert parse_line(1, line).id == parse_line(1, other).id
    for body in REPEATED:
        with pytest.raises(Misuse, match="is there twice"):
            read_body_option(body)
        with pytest.raises(ValueError, match="is there twice"):
            parse_line(1, line.replace(GIVEN, body))


def test_a_decision_goes_to_the_app_with_the_body_as_it_was_given() -> None:
    asked: list[Any] = []

    class App:
        def ask(self, *words: Any) -> Any:
            asked.append(words[-1])
            return {"entry": {"position": 1, "status": "completed"}}

    target = ChosenStandstill("s", "why not", {"action": "edit", "at": 4})
    carry_out_one(App(), target, {"who": "Ada", "why": "x"} | read_body_option(GIVEN))  # type: ignore[arg-type]

    said = read_decision(ResolutionBody, asked[0], None)
    assert (said["body"], said["at"]) == (GIVEN.encode(), 4)


async def test_a_decimal_in_a_bare_number_is_a_double_and_as_text_it_is_not() -> None:
    """So docs/handlers.md says of pydantic."""
    bare = Trade.model_validate_json('{"ticks": 1, "price": 12345678901234567.89}')
    text = Trade.model_validate_json('{"ticks": 1, "price": "12345678901234567.89"}')

    assert bare.price == Decimal(12345678901234568)
    assert text.price == Decimal("12345678901234567.89")

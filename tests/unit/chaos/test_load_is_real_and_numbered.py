"""The load follows from its seed: real flights, numbered without gaps, with poison among them."""

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from chaos.load import Operation, write_load
from chaos.names import CURSED, EFFECTFUL, PURE, UNKNOWN
from chaos.records import read_lines

MESSAGES, OPERATION_MAX = 6_000, 8


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> list[Operation]:
    path = tmp_path_factory.mktemp("load") / "load.jsonl"
    written = write_load(path, MESSAGES, OPERATION_MAX, seed=3)
    found = [Operation.parse(line) for line in read_lines(path)]
    assert written == sum(len(operation.letters) for operation in found)
    return found


def test_there_are_as_many_messages_as_asked_for(load: list[Operation]) -> None:
    count = sum(len(operation.letters) for operation in load)

    assert MESSAGES <= count < MESSAGES + OPERATION_MAX
    assert max(len(operation.letters) for operation in load) == OPERATION_MAX


def test_every_session_is_numbered_from_nought_without_a_gap(load: list[Operation]) -> None:
    sent: Counter[str] = Counter()
    for operation in load:
        assert operation.first == sent[operation.session]
        sent[operation.session] += len(operation.letters)


def test_ids_are_unique_and_every_type_is_there(load: list[Operation]) -> None:
    found = [letter for operation in load for letter in operation.letters]

    assert len({letter.id for letter in found}) == len(found)
    assert {letter.type for letter in found} == {PURE, EFFECTFUL, CURSED, UNKNOWN}


def test_what_no_handler_knows_is_alone_in_its_session(load: list[Operation]) -> None:
    types: defaultdict[str, list[str]] = defaultdict(list)
    for operation in load:
        types[operation.session] += [letter.type for letter in operation.letters]

    assert [own for own in types.values() if UNKNOWN in own and own != [UNKNOWN]] == []


def test_bodies_are_the_statuses_of_an_aircraft_in_their_order(load: list[Operation]) -> None:
    (session, _), *_ = Counter(operation.session for operation in load).most_common(1)
    bodies = [letter.body for o in load if o.session == session for letter in o.letters]

    assert all('"flight":' in body for body in bodies)
    assert bodies[0].startswith('{"at":"2013-01-0')


def test_the_same_seed_makes_the_same_load_and_another_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories = {f"N{n}": [f'{{"n":{i}}}' for i in range(30)] for n in range(5)}
    monkeypatch.setattr("chaos.load.longest_histories", lambda _: histories.items())
    texts = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_load(tmp_path / name, 100, OPERATION_MAX, seed)
        texts.append((tmp_path / name).read_bytes())

    assert texts[0] == texts[1]
    assert texts[0] != texts[2]

"""The workload follows from its seed: real flights, numbered without gaps, and poison."""

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from proof.chaos.messages import EFFECTFUL, FAILING, PURE, UNKNOWN
from proof.chaos.records import read_lines
from proof.chaos.workload import PublishOperation, write_workload

MESSAGES, OPERATION_MAX = 6_000, 8


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> list[PublishOperation]:
    path = tmp_path_factory.mktemp("workload") / "workload.jsonl"
    written = write_workload(path, MESSAGES, OPERATION_MAX, seed=3)
    found = [PublishOperation.parse(line) for line in read_lines(path)]
    assert written == sum(len(operation.messages) for operation in found)
    return found


@pytest.mark.slow
def test_there_are_as_many_messages_as_asked_for(workload: list[PublishOperation]) -> None:
    count = sum(len(operation.messages) for operation in workload)

    assert MESSAGES <= count < MESSAGES + OPERATION_MAX
    assert max(len(operation.messages) for operation in workload) == OPERATION_MAX


def test_every_session_is_numbered_from_nought_without_a_gap(
    workload: list[PublishOperation],
) -> None:
    sent: Counter[str] = Counter()
    for operation in workload:
        assert operation.first == sent[operation.session]
        sent[operation.session] += len(operation.messages)


def test_ids_are_unique_and_every_type_is_there(workload: list[PublishOperation]) -> None:
    found = [message for operation in workload for message in operation.messages]

    assert len({message.id for message in found}) == len(found)
    assert {message.type for message in found} == {PURE, EFFECTFUL, FAILING, UNKNOWN}


def test_what_no_handler_knows_is_alone_in_its_session(workload: list[PublishOperation]) -> None:
    types: defaultdict[str, list[str]] = defaultdict(list)
    for operation in workload:
        types[operation.session] += [message.type for message in operation.messages]

    assert [own for own in types.values() if UNKNOWN in own and own != [UNKNOWN]] == []


def test_bodies_are_the_statuses_of_an_aircraft_in_their_order(
    workload: list[PublishOperation],
) -> None:
    (session, _), *_ = Counter(operation.session for operation in workload).most_common(1)
    bodies = [message.body for o in workload if o.session == session for message in o.messages]

    assert all('"flight":' in body for body in bodies)
    assert bodies[0].startswith('{"at":"2013-01-0')


def test_the_same_seed_makes_the_same_load_and_another_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories = {f"N{n}": [f'{{"n":{i}}}' for i in range(30)] for n in range(5)}
    monkeypatch.setattr("proof.chaos.workload.read_longest_histories", lambda _: histories.items())
    texts = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_workload(tmp_path / name, 100, OPERATION_MAX, seed)
        texts.append((tmp_path / name).read_bytes())

    assert texts[0] == texts[1]
    assert texts[0] != texts[2]

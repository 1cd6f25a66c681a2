"""The workload follows from its seed: real flights, numbered without gaps, and poison."""

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from proof.chaos.messages import EFFECTFUL, FAILING, PURE, UNKNOWN
from proof.chaos.records import read_lines
from proof.chaos.workload import PublishOperation, write_workload

MESSAGES, OPERATION_MAX = 6_000, 8


@pytest.mark.slow
def test_sessions_are_numbered_without_a_gap_and_every_type_is_there(tmp_path: Path) -> None:
    written = write_workload(tmp_path / "workload", MESSAGES, OPERATION_MAX, seed=3)

    sent: defaultdict[str, list[str]] = defaultdict(list)
    ids: Counter[str] = Counter()
    for operation in map(PublishOperation.parse, read_lines(tmp_path / "workload")):
        assert operation.first == len(sent[operation.session])
        assert len(operation.messages) <= OPERATION_MAX
        sent[operation.session] += [message.type for message in operation.messages]
        ids.update(message.id for message in operation.messages)
    assert MESSAGES <= written == ids.total() == len(ids) < MESSAGES + OPERATION_MAX
    assert {kind for own in sent.values() for kind in own} == {PURE, EFFECTFUL, FAILING, UNKNOWN}
    # What no handler knows is alone in its session.
    assert [own for own in sent.values() if UNKNOWN in own and own != [UNKNOWN]] == []


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

"""The ledger on disk: what was committed is there, wherever a kill hits."""

import errno
import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from local.servicebus import store
from local.servicebus.duplicates import Seen
from local.servicebus.ledger import Kept
from local.servicebus.message import Message, State, StoredMessage
from local.servicebus.store import Store
from local.sqlite_file import ForeignFile

QUEUE = "flights"
FILES = "servicebus-east"


def message(number: int, deliveries: int = 0) -> StoredMessage:
    body = Message(b"x" * number, "a session", None, None)
    return StoredMessage(number, body, 1.0, state=State.ACTIVE, delivery_count=deliveries)


@contextmanager
def opened(directory: Path) -> Iterator[Store]:
    """A store that is closed in the end."""
    ledger = Store(directory / f"{FILES}.sqlite")
    try:
        yield ledger
    finally:
        ledger.close()


def left_by_a_kill(directory: Path, copy: Path) -> Kept:
    """What a new process would find if the one that holds the directory died now."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory, copy)
    with opened(copy) as found:
        return found.load(QUEUE)


class Model:
    """Does the same to a store and to dictionaries."""

    def __init__(self, ledger: Store, chance: random.Random) -> None:
        self.ledger = ledger
        self.chance = chance
        self.last = 0
        self.messages: dict[int, StoredMessage] = {}
        self.states: dict[str, bytes] = {}
        self.seen: dict[str, Seen] = {}

    def step(self) -> None:
        """One change of any kind."""
        self.chance.choice([self.arrive, self.leave, self.fail, self.set_state, self.see])()

    def arrive(self) -> None:
        self.last += 1
        self.ledger.number(QUEUE, self.last)
        self.messages[self.last] = message(self.last)
        self.ledger.keep(QUEUE, self.messages[self.last])

    def leave(self) -> None:
        if self.messages:
            number = self.chance.choice(list(self.messages))
            del self.messages[number]
            self.ledger.forget(QUEUE, number)

    def fail(self) -> None:
        if self.messages:
            number = self.chance.choice(list(self.messages))
            failed = message(number, self.messages[number].delivery_count + 1)
            self.messages[number] = failed
            self.ledger.keep(QUEUE, failed)

    def set_state(self) -> None:
        session, state = self.chance.choice("ab"), self.chance.choice([None, b"one", b"two"])
        self.states.pop(session, None)
        if state is not None:
            self.states[session] = state
        self.ledger.keep_session_state(QUEUE, session, state)

    def see(self) -> None:
        name = self.chance.choice("mn")
        if self.seen.pop(name, None) is None:
            self.seen[name] = Seen(name, float(self.last), self.last)
            self.ledger.remember(QUEUE, self.seen[name])
        else:
            self.ledger.unremember(QUEUE, name)

    def kept(self) -> Kept:
        """What must be there."""
        return Kept(
            self.last,
            tuple(self.messages[number] for number in sorted(self.messages)),
            self.states,
            tuple(sorted(self.seen.values(), key=lambda seen: seen.at)),
        )


@pytest.mark.parametrize("seed", range(3))
def test_whatever_was_committed_is_there_after_a_kill(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "ROWS_MAX", 7)  # so that the database commits now and then
    chance = random.Random(seed)
    with opened(tmp_path / "data") as ledger:
        model = Model(ledger, chance)
        for _ in range(60):
            for _ in range(chance.randrange(4)):
                model.step()
            ledger.commit()
            found = left_by_a_kill(tmp_path / "data", tmp_path / "copy")
            assert same(found) == same(model.kept())

    with opened(tmp_path / "data") as again:
        assert same(again.load(QUEUE)) == same(model.kept())


def same(kept: Kept) -> tuple[object, ...]:
    """What two ledgers must agree on: ids seen at the same time come in any order."""
    return kept.last_sequence_number, kept.messages, kept.session_states, {*kept.seen}


def test_what_was_not_committed_is_not_there(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as ledger:
        ledger.keep(QUEUE, message(1))
        ledger.commit()
        ledger.keep(QUEUE, message(2))

        found = left_by_a_kill(tmp_path / "data", tmp_path / "copy")

    assert found.messages == (message(1),)


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_last_write_that_was_cut_off_does_not_count(cut: int, tmp_path: Path) -> None:
    pending = tmp_path / "data" / f"{FILES}.pending"
    with opened(tmp_path / "data") as ledger:
        ledger.keep(QUEUE, message(1))
        ledger.commit()
        before = pending.stat().st_size
        ledger.keep(QUEUE, message(150))
        ledger.commit()
        assert pending.stat().st_size - before > cut
        os.truncate(pending, pending.stat().st_size - cut)

        found = left_by_a_kill(tmp_path / "data", tmp_path / "copy")

    assert found.messages == (message(1),)


def test_a_file_of_another_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / f"{FILES}.sqlite"
    foreign = sqlite3.connect(path)
    foreign.executescript("CREATE TABLE messages (queue TEXT, number INTEGER)")
    foreign.close()
    before = path.read_bytes()

    with pytest.raises(ForeignFile, match=r"servicebus-east\.sqlite was written by another"):
        Store(path)

    assert path.read_bytes() == before


def test_what_is_left_beside_a_file_that_was_removed_does_not_count(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as ledger:
        ledger.keep(QUEUE, message(1))
        ledger.commit()
        shutil.copy(tmp_path / "data" / f"{FILES}.pending", tmp_path)

    with opened(tmp_path) as anew:
        assert anew.load(QUEUE) == Kept()


def test_what_the_database_has_already_may_be_pending_still(tmp_path: Path) -> None:
    pending = tmp_path / "data" / f"{FILES}.pending"
    with opened(tmp_path / "data") as ledger:
        for number in (1, 2, 3):
            ledger.keep(QUEUE, message(number))
        ledger.forget(QUEUE, 2)
        ledger.commit()
        shutil.copy(pending, tmp_path)
    shutil.move(tmp_path / pending.name, pending)  # as after a kill before it could be emptied

    with opened(tmp_path / "data") as again:
        assert again.load(QUEUE).messages == (message(1), message(3))


def test_a_full_disk_is_said_and_nothing_is_torn_or_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, room = os.write, [10]

    def write_until_full(file: int, data: memoryview) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(file, data[: room[0]])
        room[0] -= written
        return written

    with opened(tmp_path / "data") as ledger:
        ledger.keep(QUEUE, message(1))
        ledger.commit()
        ledger.keep(QUEUE, message(2))
        with monkeypatch.context() as full:
            full.setattr(os, "write", write_until_full)
            with pytest.raises(OSError, match="No space left"):
                ledger.commit()
            assert left_by_a_kill(tmp_path / "data", tmp_path / "copy").messages == (message(1),)
        ledger.keep(QUEUE, message(3))
        ledger.commit()

        found = left_by_a_kill(tmp_path / "data", tmp_path / "copy")

    assert found.messages == (message(1), message(2), message(3))

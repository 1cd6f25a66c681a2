"""The store on disk: what was committed is there, wherever a kill hits."""

import errno
import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from local.servicebus.entities import sqlite_store
from local.servicebus.entities.indexes import SentMessageId
from local.servicebus.entities.sqlite_store import SqliteMessageStore
from local.servicebus.entities.store import SessionState, StoredQueue
from local.servicebus.message import BrokeredMessage, MessageState, StoredMessage
from local.sqlite_file import ForeignFile

QUEUE = "flights"
FILES = "servicebus-east"


def message(number: int, deliveries: int = 0) -> StoredMessage:
    body = BrokeredMessage(b"x" * number, "a session", None, None)
    return StoredMessage(number, body, 1.0, state=MessageState.ACTIVE, delivery_count=deliveries)


@contextmanager
def opened(directory: Path) -> Iterator[SqliteMessageStore]:
    """A store that is closed in the end."""
    store = SqliteMessageStore(directory / f"{FILES}.sqlite")
    try:
        yield store
    finally:
        store.close()


def left_by_a_kill(directory: Path, copy: Path) -> StoredQueue:
    """What a new process would find if the one that holds the directory died now."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory, copy)
    with opened(copy) as found:
        return found.load(QUEUE)


class Model:
    """Does the same to a store and to dictionaries."""

    def __init__(self, store: SqliteMessageStore, chance: random.Random) -> None:
        self.store = store
        self.chance = chance
        self.last = 0
        self.messages: dict[int, StoredMessage] = {}
        self.states: dict[str, SessionState] = {}
        self.seen: dict[str, SentMessageId] = {}

    def step(self) -> None:
        """One change of any kind."""
        self.chance.choice([self.arrive, self.leave, self.fail, self.set_state, self.see])()

    def arrive(self) -> None:
        self.last += 1
        self.store.save_last_sequence_number(QUEUE, self.last)
        self.messages[self.last] = message(self.last)
        self.store.save_message(QUEUE, self.messages[self.last])

    def leave(self) -> None:
        if self.messages:
            number = self.chance.choice(list(self.messages))
            del self.messages[number]
            self.store.delete_message(QUEUE, number)

    def fail(self) -> None:
        if self.messages:
            number = self.chance.choice(list(self.messages))
            failed = message(number, self.messages[number].delivery_count + 1)
            self.messages[number] = failed
            self.store.save_message(QUEUE, failed)

    def set_state(self) -> None:
        session, content = self.chance.choice("ab"), self.chance.choice([None, b"one", b"two"])
        state = None if content is None else SessionState(content, self.chance.random())
        self.states.pop(session, None)
        if state is not None:
            self.states[session] = state
        self.store.save_session_state(QUEUE, session, state)

    def see(self) -> None:
        name = self.chance.choice("mn")
        if self.seen.pop(name, None) is None:
            self.seen[name] = SentMessageId(name, float(self.last), self.last)
            self.store.save_sent_id(QUEUE, self.seen[name])
        else:
            self.store.delete_sent_id(QUEUE, name)

    def kept(self) -> StoredQueue:
        """What must be there."""
        return StoredQueue(
            self.last,
            tuple(self.messages[number] for number in sorted(self.messages)),
            self.states,
            tuple(sorted(self.seen.values(), key=lambda seen: seen.at)),
        )


@pytest.mark.parametrize("seed", range(3))
def test_whatever_was_committed_is_there_after_a_kill(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sqlite_store, "LOG_ROWS_MAX", 7
    )  # so that the database commits now and then
    chance = random.Random(seed)
    with opened(tmp_path / "data") as store:
        model = Model(store, chance)
        for _ in range(60):
            for _ in range(chance.randrange(4)):
                model.step()
            store.commit()
            found = left_by_a_kill(tmp_path / "data", tmp_path / "copy")
            assert same(found) == same(model.kept())

    with opened(tmp_path / "data") as again:
        assert same(again.load(QUEUE)) == same(model.kept())


def same(kept: StoredQueue) -> tuple[object, ...]:
    """What two ledgers must agree on: ids seen at the same time come in any order."""
    return kept.last_sequence_number, kept.messages, kept.session_states, {*kept.sent_ids}


def test_what_was_not_committed_is_not_there(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as store:
        store.save_message(QUEUE, message(1))
        store.commit()
        store.save_message(QUEUE, message(2))

        found = left_by_a_kill(tmp_path / "data", tmp_path / "copy")

    assert found.messages == (message(1),)


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_last_write_that_was_cut_off_does_not_count(cut: int, tmp_path: Path) -> None:
    pending = tmp_path / "data" / f"{FILES}.pending"
    with opened(tmp_path / "data") as store:
        store.save_message(QUEUE, message(1))
        store.commit()
        before = pending.stat().st_size
        store.save_message(QUEUE, message(150))
        store.commit()
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
        SqliteMessageStore(path)

    assert path.read_bytes() == before


def test_a_session_state_from_before_its_time_was_kept_is_as_old_as_can_be(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.save_session_state(QUEUE, "N101", SessionState(b"gate 7", 1.0))
    earlier = sqlite3.connect(tmp_path / f"{FILES}.sqlite")
    earlier.executescript("DROP TABLE session_state_times")
    earlier.close()

    with opened(tmp_path) as again:
        assert again.load(QUEUE).session_states == {"N101": SessionState(b"gate 7", 0.0)}


def test_what_is_left_beside_a_file_that_was_removed_does_not_count(tmp_path: Path) -> None:
    with opened(tmp_path / "data") as store:
        store.save_message(QUEUE, message(1))
        store.commit()
        shutil.copy(tmp_path / "data" / f"{FILES}.pending", tmp_path)

    with opened(tmp_path) as anew:
        assert anew.load(QUEUE) == StoredQueue()


def test_what_the_database_has_already_may_be_pending_still(tmp_path: Path) -> None:
    pending = tmp_path / "data" / f"{FILES}.pending"
    with opened(tmp_path / "data") as store:
        for number in (1, 2, 3):
            store.save_message(QUEUE, message(number))
        store.delete_message(QUEUE, 2)
        store.commit()
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

    with opened(tmp_path / "data") as store:
        store.save_message(QUEUE, message(1))
        store.commit()
        store.save_message(QUEUE, message(2))
        with monkeypatch.context() as full:
            full.setattr(os, "write", write_until_full)
            with pytest.raises(OSError, match="No space left"):
                store.commit()
            assert left_by_a_kill(tmp_path / "data", tmp_path / "copy").messages == (message(1),)
        store.save_message(QUEUE, message(3))
        store.commit()

        found = left_by_a_kill(tmp_path / "data", tmp_path / "copy")

    assert found.messages == (message(1), message(2), message(3))

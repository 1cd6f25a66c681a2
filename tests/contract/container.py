"""What every Container promises. Subclasses bring a `container` fixture."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from shared.domain.errors import NotStorable, TooLarge
from shared.domain.handler import LEVELS_MAX
from shared.ports import (
    Container,
    CreateDocument,
    DeleteDocument,
    Document,
    Operation,
    PatchDocument,
    Query,
    ReadDocument,
    ReplaceDocument,
    StoreClock,
    UpsertDocument,
    WriteResult,
)
from shared.storage.documents import version_of, written_at

CREATED, TAKEN, ORPHANED = WriteResult.CREATED, WriteResult.TAKEN, WriteResult.ORPHANED
STALE = '"stale"'
# Clocks tell whole seconds, and tests may take their time.
AGE_SECONDS_MAX = 60.0


def document(session: str, name: str, **fields: object) -> Document:
    return {"id": name, "session": session, "kind": "tested", **fields}


def creation(session: str, name: str, **fields: object) -> CreateDocument:
    return CreateDocument(document(session, name, **fields), TAKEN)


def nested(levels: int) -> object:
    inner: object = []
    for _ in range(levels - 1):
        inner = [inner]
    return inner


async def names(container: Container, session: str) -> list[str]:
    """Return the ids of all documents of a session, in their order."""
    query = Query("SELECT * FROM c ORDER BY c.id", 1_000, session=session, order="id")
    return [one["id"] for one in await container.find(query)]


class ContainerContract:
    async def test_a_document_is_read_whole_with_its_version_and_time(
        self, container: Container, session: str
    ) -> None:
        stored = document(session, "a", said={"text": "Zoë ✓", "numbers": [1, 2.5, None, True]})
        result, version = await container.write(session, [CreateDocument(stored, TAKEN)])
        clock = StoreClock()

        found = await container.read(session, "a", clock=clock)

        assert result is CREATED
        assert found is not None
        assert found | stored == found
        assert version_of(found) == version
        assert 0 <= clock.seconds - written_at(found) < AGE_SECONDS_MAX
        assert await container.read(session, "a", may_be_old=True) == found
        assert await container.read(session, "b") is None
        assert await container.read(f"{session}-b", "a") is None

    async def test_operations_are_applied_in_order(
        self, container: Container, session: str
    ) -> None:
        first, _ = await container.write(session, [creation(session, n) for n in "abcd"])
        _, version = await container.write(
            session, [creation(session, "e", deep={"kept": 1}, list=[7])]
        )

        result, last = await container.write(
            session,
            [
                ReadDocument("a", ORPHANED),
                DeleteDocument("b", ORPHANED),
                UpsertDocument(document(session, "c", n=1)),
                UpsertDocument(document(session, "f", n=2)),
                PatchDocument("d", {"/n": 3, "/list": []}, ORPHANED),
                PatchDocument("e", {"/deep/n": 4}, TAKEN, version, unless_empty="list"),
            ],
        )

        assert (first, result) == (CREATED, CREATED)
        assert await names(container, session) == ["a", "c", "d", "e", "f"]
        found = {name: await container.read(session, name) for name in "cdef"}
        assert [(one or {}).get("n") for one in found.values()] == [1, 3, None, 2]
        assert (found["d"] or {})["list"] == []
        assert (found["e"] or {})["deep"] == {"kept": 1, "n": 4}
        assert version_of(found["e"] or {}) == last != version
        for one in (
            ReplaceDocument(document(session, "e"), last, TAKEN),
            DeleteDocument("a", TAKEN),
        ):
            assert (await container.write(session, [one]))[0] is CREATED
        assert await names(container, session) == ["c", "d", "e", "f"]

    @pytest.mark.parametrize(
        "refused",
        [
            lambda session: CreateDocument(document(session, "there"), ORPHANED),
            lambda session: ReplaceDocument(document(session, "there"), STALE, ORPHANED),
            lambda session: ReplaceDocument(document(session, "gone"), STALE, ORPHANED),
            lambda _: PatchDocument("gone", {"/n": 1}, ORPHANED),
            lambda _: PatchDocument("there", {"/n": 1}, ORPHANED, STALE),
            lambda _: PatchDocument("there", {"/n": 1}, ORPHANED, unless_empty="list"),
            lambda _: PatchDocument("there", {"/n": 1}, ORPHANED, unless_empty="nothing"),
            lambda _: DeleteDocument("gone", ORPHANED),
            lambda _: DeleteDocument("there", ORPHANED, STALE),
            lambda _: ReadDocument("gone", ORPHANED),
        ],
        ids=[
            "create again",
            "replace another version",
            "replace nothing",
            "patch nothing",
            "patch another version",
            "patch what is empty",
            "patch what is not there",
            "delete nothing",
            "delete another version",
            "read nothing",
        ],
    )
    async def test_the_first_that_is_refused_says_what_it_means_and_nothing_happens(
        self, container: Container, session: str, refused: Callable[[str], Operation]
    ) -> None:
        await container.write(session, [creation(session, "there", n=0, list=[])])
        before = await container.read(session, "there")

        answer = await container.write(
            session,
            [
                creation(session, "new"),
                PatchDocument("there", {"/n": 9}, TAKEN),
                refused(session),
                ReadDocument("gone", WriteResult.SEEN_BEFORE),
            ],
        )

        assert answer[0] is ORPHANED
        assert await names(container, session) == ["there"]
        assert await container.read(session, "there") == before

    async def test_of_many_at_once_one_creates_and_one_replaces(
        self, container: Container, session: str
    ) -> None:
        async def race(rivals: Sequence[Operation]) -> list[WriteResult]:
            answers = await asyncio.gather(*(container.write(session, [one]) for one in rivals))
            return [result for result, _ in answers]

        created = await race([creation(session, "a", by=n) for n in range(20)])
        stored = await container.read(session, "a")
        assert stored is not None
        assert [result is CREATED for result in created] == [n == stored["by"] for n in range(20)]

        rivals = [document(session, "a", by=n) for n in range(20)]
        replaced = await race([ReplaceDocument(r, version_of(stored), TAKEN) for r in rivals])
        stored = await container.read(session, "a")
        assert stored is not None
        assert [result is CREATED for result in replaced] == [n == stored["by"] for n in range(20)]

    @pytest.mark.parametrize(
        "said",
        [nested(LEVELS_MAX), float("nan"), [1.5, float("-inf")]],
        ids=["deep", "not a number", "infinite"],
    )
    async def test_what_the_store_never_takes_is_refused_for_good(
        self, container: Container, session: str, said: object
    ) -> None:
        with pytest.raises(NotStorable):
            await container.write(session, [creation(session, "a", said=said)])

        assert await names(container, session) == []

    async def test_what_is_nested_as_deep_as_can_be_is_kept(
        self, container: Container, session: str
    ) -> None:
        deep = nested(LEVELS_MAX - 1)

        assert (await container.write(session, [creation(session, "a", said=deep)]))[0] is CREATED

        assert (await container.read(session, "a") or {})["said"] == deep

    async def test_numbers_keep_their_digits_also_in_a_document_that_is_patched(
        self, container: Container, session: str
    ) -> None:
        numbers = [2**53, -(2**53), 0.1 + 0.2, 1 / 3, 5e-324, 1.7976931348623157e308, 1e17, -1e-7]
        kept = {"numbers": numbers, "text": "1234567890123.45678901234567890"}
        await container.write(session, [creation(session, "a", **kept)])
        await container.write(session, [PatchDocument("a", {"/pending": ["east"]}, ORPHANED)])

        found = await container.read(session, "a") or {}

        assert {name: found[name] for name in kept} == kept

    @pytest.mark.parametrize(
        ("parts", "size", "error"), [(101, 1, NotStorable), (2, 1_100_000, TooLarge)]
    )
    async def test_what_no_batch_takes_is_refused_for_good_and_leaves_nothing(
        self,
        container: Container,
        session: str,
        parts: int,
        size: int,
        error: type[NotStorable],
    ) -> None:
        vast = [creation(session, str(n), text="x" * size) for n in range(parts)]

        with pytest.raises(error):
            await container.write(session, vast)

        assert await names(container, session) == []

    async def test_a_query_finds_the_first_ones_until_it_has_enough(
        self, container: Container, session: str
    ) -> None:
        for name in "cab":
            await container.write(session, [creation(session, name, wanted=True)])
        await container.write(session, [creation(session, "d")])
        told: list[float] = []
        clock = StoreClock()

        def is_enough(found: list[Document], following: Document) -> bool:
            told.append(clock.seconds - written_at(following))
            return len(found) == 2

        query = Query(
            "SELECT * FROM c WHERE c.wanted = @w ORDER BY c.id DESC",
            10,
            lambda one: bool(one.get("wanted")),
            {"@w": True},
            session,
            order="id",
            is_descending=True,
            is_enough=is_enough,
        )
        found = await container.find(query, clock)

        assert [one["id"] for one in found] == ["c", "b"]
        assert len(told) == 3
        assert all(0 <= seconds < AGE_SECONDS_MAX for seconds in told)

    async def test_a_look_finds_nothing_and_leaves_nothing(
        self, container: Container, session: str
    ) -> None:
        await container.look()

        assert await names(container, session) == []

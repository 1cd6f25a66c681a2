"""Several calls of one session at once, as `maxConcurrentCallsPerSession` of host.json allows."""

from pathlib import Path
from typing import Any

import pytest

from local.testing.answers import KEY
from local.testing.patience import eventually
from wire.functions_host_process import running_host
from wire.test_functions_host_service_bus import World, app_with, received, world
from wire.test_functions_host_timeouts import begun

__all__ = ["world"]
pytestmark = pytest.mark.wire


def app_of(tmp_path: Path, calls: int, **limits: Any) -> Path:
    """The sample app, with so many calls of a session at once."""
    service_bus = {"maxConcurrentSessions": 4, "sessionIdleTimeout": "00:00:00.2", **limits}
    service_bus["maxConcurrentCallsPerSession"] = calls
    extensions = {"http": {"routePrefix": "api"}, "serviceBus": service_bus}
    return app_with(tmp_path, functionTimeout="00:01:00", extensions=extensions)


def most_at_once(notes: list[dict[str, Any]]) -> int:
    """How many runs were under way at the same time."""
    counts = (sum(o["began"] <= n["began"] < o["ended"] for o in notes) for n in notes)
    most: int = max(counts)
    return most


@pytest.mark.parametrize("calls", [1, 4])
def test_a_session_has_as_many_calls_at_once_as_allowed(
    world: World, tmp_path: Path, calls: int
) -> None:
    connection = world.namespace.connection_string
    with running_host(tmp_path, app_of(tmp_path, calls), ServiceBus=connection) as host:
        world.send(("s1", f"m-{n}", {"n": n, "pause": 0.1}) for n in range(12))

        notes = received(host, 12)

        assert most_at_once(notes) == calls
        assert sorted(note["body"]["n"] for note in notes) == list(range(12))
        assert {note["delivery_count"] for note in notes} == {1}
        eventually(world.is_drained)


def test_when_one_of_several_calls_fails_it_comes_back_and_the_others_go_on(
    world: World, tmp_path: Path
) -> None:
    connection = world.namespace.connection_string
    with running_host(tmp_path, app_of(tmp_path, 4), ServiceBus=connection) as host:
        bodies = [{"n": n, "pause": 0.1, "failures": int(n == 0)} for n in range(8)]
        world.send(("s1", f"m-{body['n']}", body) for body in bodies)

        notes = received(host, 9)

        runs = sorted((note["body"]["n"], note["delivery_count"]) for note in notes)
        assert runs == [(0, 1), (0, 2), *((n, 1) for n in range(1, 8))]
        again = next(note for note in notes if note["delivery_count"] == 2)
        assert any(n["body"]["n"] > 0 and n["ended"] <= again["began"] for n in notes)
        eventually(world.is_drained)


def test_when_a_lock_is_lost_its_messages_come_again_while_the_old_calls_run(
    world: World, tmp_path: Path
) -> None:
    limits = {"maxAutoLockRenewalDuration": "00:00:00.3", "maxConcurrentSessions": 1}
    app = app_of(tmp_path, 4, **limits)
    connection = world.namespace.connection_string
    with running_host(tmp_path, app, ServiceBus=connection, SAMPLE_QUEUE="hasty") as host:
        held = {"until": str(tmp_path / "released")}
        world.send([("s1", f"m-{n}", {"n": n, **held}) for n in range(4)], "hasty")
        eventually(lambda: len(begun(host, "m-")) >= 8)
        (tmp_path / "released").touch()

        def first_runs() -> list[dict[str, Any]]:
            return [n for n in host.seen("messages") if n["delivery_count"] <= 2]

        eventually(lambda: len(first_runs()) == 8)
        notes = first_runs()
        assert sorted((n["body"]["n"], n["delivery_count"]) for n in notes) == [
            (n, count) for n in range(4) for count in (1, 2)
        ]
        assert most_at_once(notes) == 8


def test_a_drain_lets_every_call_of_a_session_settle_and_leaves_the_rest(
    world: World, tmp_path: Path
) -> None:
    connection = world.namespace.connection_string
    with running_host(tmp_path, app_of(tmp_path, 4), ServiceBus=connection) as host:
        held = {"until": str(tmp_path / "released")}
        world.send(("s1", f"m-{n}", {"n": n, **held}) for n in range(10))
        eventually(lambda: world.namespace.depth("sample")["locked"] == 4)

        assert host.request("/admin/host/drain", "POST", headers=KEY).status == 202
        (tmp_path / "released").touch()
        assert host.end() == 0

    depth = world.namespace.depth("sample")
    assert (depth["active"], depth["locked"]) == (6, 0)
    assert "abandon" not in world.operations()


def test_when_calls_of_a_session_find_nothing_more_their_credit_is_drained(
    world: World, tmp_path: Path
) -> None:
    connection = world.namespace.connection_string
    app = app_of(tmp_path, 4, sessionIdleTimeout="00:00:00.01")
    with running_host(tmp_path, app, ServiceBus=connection) as host:
        world.send([("s1", "long", {"until": str(tmp_path / "released")})])
        eventually(lambda: world.namespace.depth("sample")["locked"] == 1)

        def is_left_in_the_queue() -> bool:
            world.send([("s1", "short", {})])
            return world.namespace.depth("sample")["active"] > 0

        eventually(is_left_in_the_queue)
        # Calls that have ended hold no message back: locked is only what runs.
        eventually(lambda: world.namespace.depth("sample")["locked"] == 1)

        assert "long" not in {note["message_id"] for note in host.seen("messages")}
        (tmp_path / "released").touch()
        eventually(world.is_drained)
        assert {note["delivery_count"] for note in host.seen("messages")} == {1}


def test_several_calls_of_a_session_start_out_of_order(world: World, tmp_path: Path) -> None:
    connection = world.namespace.connection_string
    with running_host(tmp_path, app_of(tmp_path, 16), ServiceBus=connection) as host:
        world.send(("s1", f"m-{n}", {"n": n, "pause": 0.05}) for n in range(48))

        notes = sorted(received(host, 48), key=lambda note: note["began"])

        starts = [note["body"]["n"] for note in notes]
        assert sorted(starts) == list(range(48))
        assert starts != sorted(starts)
        eventually(world.is_drained)

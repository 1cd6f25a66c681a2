"""A Durable app on real host processes, its work through the backend of the local cloud."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from local.durable.backend import DurableBackend
from local.faults import Action, Fault, Faults
from local.loopback import held_port
from local.testing.patience import eventually
from wire.functions_host_process import HostProcess, running_host

pytestmark = pytest.mark.wire

APP = Path(__file__).parent / "durable_app"
POLLING = "AzureFunctionsJobHost__extensions__durableTask__storageProvider__maxQueuePollingInterval"
OVER = ("Completed", "Failed", "Terminated")


@contextmanager
def running_backend(faults: Faults | None = None) -> Iterator[DurableBackend]:
    """A backend for one `with` block."""
    backend = DurableBackend("east", faults=faults)
    backend.start()
    try:
        yield backend
    finally:
        backend.stop()


@pytest.fixture(scope="module")
def backend() -> Iterator[DurableBackend]:
    with running_backend() as backend:
        yield backend


@pytest.fixture(scope="module")
def host(
    backend: DurableBackend, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HostProcess]:
    path = tmp_path_factory.mktemp("durable")
    with running_host(path, APP, LOCAL_DURABLE_ADDRESS=backend.address) as host:
        yield host


def started(host: HostProcess, name: str, value: Any = None) -> dict[str, str]:
    """Start an orchestrator through the app; the answer is its links."""
    answer = host.request(f"/api/start/{name}", "POST", body=json.dumps(value).encode())
    assert answer.status == 202
    links: dict[str, str] = json.loads(answer.body)
    return links


def status(host: HostProcess, instance_id: str) -> dict[str, Any]:
    """What the app's client knows of an instance."""
    found: dict[str, Any] = json.loads(host.request(f"/api/status/{instance_id}").body)
    return found


def ended(host: HostProcess, instance_id: str) -> tuple[str, Any]:
    """Status and output of an instance, once it is over."""

    def over() -> dict[str, Any] | None:
        found = status(host, instance_id)
        return found if found["runtimeStatus"] in OVER else None

    found = eventually(over) or {}
    return found["runtimeStatus"], found["output"]


def outcome(host: HostProcess, name: str, value: Any = None) -> tuple[str, Any]:
    """Run an orchestrator to its end."""
    return ended(host, started(host, name, value)["id"])


def ask(host: HostProcess, link: str, method: str = "POST", body: bytes | None = None) -> Any:
    """Follow a management link; the answer is status and document."""
    parts = urlsplit(link)
    answer = host.request(f"{parts.path}?{parts.query}", method, body=body)
    return answer.status, json.loads(answer.body) if answer.body else None


def state_of(host: HostProcess, links: dict[str, str]) -> str:
    """The status behind an instance's own link."""
    _, document = ask(host, links["statusQueryGetUri"], "GET")
    return str(document["runtimeStatus"])


def holding(host: HostProcess) -> bool:
    """Whether the slow activity has begun on a host."""
    return any("holding in" in line["message"] for line in host.log())


@pytest.mark.parametrize(
    ("name", "value", "output"),
    [
        ("chain", "x-", "x-abc"),
        ("fan_out", 10, 285),
        ("parent", "y-", "parent of y-abc"),
        ("count", "one", 7),
    ],
)
def test_orchestrators_complete_with_their_output(
    host: HostProcess, name: str, value: Any, output: Any
) -> None:
    assert outcome(host, name, value) == ("Completed", output)


def test_an_entity_keeps_its_state_between_orchestrations(host: HostProcess) -> None:
    assert [outcome(host, "count", "kept")[1] for _ in range(3)] == [7, 14, 21]


def test_a_failed_activity_fails_its_orchestrator_with_the_reason(host: HostProcess) -> None:
    state, output = outcome(host, "broken")

    assert state == "Failed"
    assert "broken on purpose" in output


def test_an_orchestrator_waits_for_an_event_and_then_for_its_timer(host: HostProcess) -> None:
    instance = started(host, "approval")["id"]
    eventually(lambda: status(host, instance)["runtimeStatus"] == "Running")

    host.request(f"/api/raise/{instance}/approved", "POST", body=b'{"by": "me"}')

    assert ended(host, instance) == ("Completed", {"by": "me"})


@pytest.mark.proof
def test_a_timer_in_a_quiet_hub_comes_as_late_as_its_queues_are_looked_at(
    tmp_path: Path,
) -> None:
    with running_backend() as backend:
        address = backend.address
        with running_host(tmp_path, APP, "usual", LOCAL_DURABLE_ADDRESS=address) as host:
            status, late = outcome(host, "nap", 1.0)
        often = {POLLING: "00:00:00.05"}
        with running_host(tmp_path, APP, "often", LOCAL_DURABLE_ADDRESS=address, **often) as host:
            assert outcome(host, "nap", 1.0)[0] == "Completed"

    # Looks are 0.05, 0.15, 0.35, 0.75 and 1.55 s after the timer was set.
    assert status == "Completed"
    assert late > 0.4


def test_a_client_terminates_what_waits(host: HostProcess) -> None:
    instance = started(host, "approval")["id"]

    host.request(f"/api/terminate/{instance}", "POST")

    assert ended(host, instance) == ("Terminated", "not wanted")


def test_the_links_of_a_check_status_response_lead_somewhere(host: HostProcess) -> None:
    links = started(host, "approval")
    eventually(lambda: state_of(host, links) == "Running")

    event = links["sendEventPostUri"].replace("{eventName}", "approved")
    assert ask(host, event, body=b"17") == (202, None)
    eventually(lambda: ask(host, links["statusQueryGetUri"], "GET")[0] == 200)

    _, document = ask(host, links["statusQueryGetUri"], "GET")
    assert (document["runtimeStatus"], document["output"]) == ("Completed", 17)
    assert ask(host, links["purgeHistoryDeleteUri"], "DELETE") == (200, {"instancesDeleted": 1})
    assert ask(host, links["statusQueryGetUri"], "GET") == (404, None)


def test_a_management_link_suspends_resumes_and_terminates(host: HostProcess) -> None:
    links = started(host, "approval")

    ask(host, links["suspendPostUri"].replace("{text}", "pause"))
    eventually(lambda: state_of(host, links) == "Suspended")
    ask(host, links["resumePostUri"].replace("{text}", "go"))
    eventually(lambda: state_of(host, links) == "Running")
    ask(host, links["terminatePostUri"].replace("{text}", "enough"))

    assert ended(host, links["id"]) == ("Terminated", "enough")


def test_a_management_link_rewinds_what_failed_and_restarts_what_is_over(
    host: HostProcess,
) -> None:
    links = started(host, "shaky", "one")
    assert ended(host, links["id"])[0] == "Failed"

    assert ask(host, links["rewindPostUri"].replace("{text}", "again"))[0] == 202
    eventually(lambda: state_of(host, links) == "Completed")
    assert ended(host, links["id"]) == ("Completed", "one is done")

    code, document = ask(host, links["restartPostUri"])
    assert code == 202
    assert document["id"] != links["id"]
    assert ended(host, document["id"]) == ("Completed", "one is done")


def test_management_needs_the_key_and_names_what_it_does_not_honour(host: HostProcess) -> None:
    path = "/runtime/webhooks/durabletask/instances/nobody"

    assert host.request(path).status == 401
    assert host.request(f"{path}?code=lockstep-local").status == 404
    refused = host.request(f"{path}?code=lockstep-local&showHistory=true")
    assert (refused.status, refused.body) == (400, b"not honoured: showHistory")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_what_a_dead_or_silent_host_held_is_done_by_the_other(
    tmp_path: Path, how: signal.Signals
) -> None:
    with (
        running_backend() as backend,
        running_host(tmp_path, APP, "first", LOCAL_DURABLE_ADDRESS=backend.address) as first,
        running_host(tmp_path, APP, "second", LOCAL_DURABLE_ADDRESS=backend.address) as second,
    ):
        instance = started(first, "patient", 1.0)["id"]
        eventually(lambda: holding(first) or holding(second))
        victim, other = (first, second) if holding(first) else (second, first)

        victim.process.send_signal(how)

        assert ended(other, instance) == ("Completed", other.worker())


def test_a_host_that_stops_answers_for_what_it_runs(tmp_path: Path) -> None:
    with running_backend() as backend:
        address = backend.address
        with running_host(tmp_path, APP, "first", LOCAL_DURABLE_ADDRESS=address) as first:
            instance = started(first, "patient", 0.5)["id"]
            eventually(lambda: holding(first))
            pid = first.worker()
            assert first.end(signal.SIGTERM) == 0
        with running_host(tmp_path, APP, "second", LOCAL_DURABLE_ADDRESS=address) as second:
            assert ended(second, instance) == ("Completed", pid)
            assert not holding(second)


def test_a_host_waits_for_a_backend_that_is_not_there_yet(tmp_path: Path) -> None:
    with (
        held_port(0, "a test") as port,
        running_host(tmp_path, APP, LOCAL_DURABLE_ADDRESS=f"127.0.0.1:{port}") as host,
    ):
        backend = DurableBackend("east", port=port)
        eventually(lambda: any("is down" in line["message"] for line in host.log()))
        backend.start()
        try:
            assert outcome(host, "chain", "late-") == ("Completed", "late-abc")
        finally:
            backend.stop()


def test_answers_that_are_dropped_or_refused_change_no_outcome(tmp_path: Path) -> None:
    faults = Faults()
    with (
        running_backend(faults) as backend,
        running_host(tmp_path, APP, LOCAL_DURABLE_ADDRESS=backend.address) as host,
    ):
        for operation in ("orchestrator", "activity", "entity"):
            complete = f"complete-{operation}-task"
            faults.arm(Fault("durable", Action.DROP_ANSWER, complete, times=2))
            faults.arm(Fault("durable", Action.STATUS, complete, times=1))

        instances = [started(host, "count", "once")["id"] for _ in range(3)]
        chain = started(host, "chain", "x-")["id"]

        totals = [ended(host, instance)[1] for instance in instances]
        assert max(totals) == 21
        assert ended(host, chain) == ("Completed", "x-abc")
        assert faults.listing() == []


def test_every_call_of_an_entity_counts_once_while_hosts_are_killed(tmp_path: Path) -> None:
    with running_backend() as backend, ExitStack() as hosts:
        address = backend.address

        def host(name: str) -> HostProcess:
            running = running_host(tmp_path, APP, name, LOCAL_DURABLE_ADDRESS=address)
            return hosts.enter_context(running)

        lasting, doomed = host("lasting"), host("doomed")
        instances = []
        for at in range(3):
            instances += [started(lasting, "count", f"key{n % 2}")["id"] for n in range(8)]
            doomed.process.kill()
            doomed = host(f"doomed{at}")

        outputs = [ended(lasting, instance) for instance in instances]

        assert {state for state, _ in outputs} == {"Completed"}
        highest = [max(total for _, total in outputs[key::2]) for key in range(2)]
        assert highest == [12 * 7, 12 * 7]

"""HTTP through the real host process and the sample app."""

import gzip
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.testing.answers import KEY
from local.testing.patience import eventually, wait_for_end
from wire.functions_host_process import SAMPLE_APP, HostProcess, running_host

pytestmark = pytest.mark.wire

KEYS = {
    "functions.item.default": "for-item",
    "functions.slow.default": "for-slow",
    "host.function.default": "for-all",
    "AzureWebJobs.disabled.Disabled": "true",
}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    with running_host(tmp_path_factory.mktemp("http"), SAMPLE_APP, **KEYS) as host:
        yield host


def test_the_ready_line_names_url_process_and_functions(host: HostProcess) -> None:
    assert host.ready["pid"] == host.process.pid
    assert host.ready["functions"][:5] == ["receive", "follow", "tick", "by_hand", "tell"]
    assert host.ready["functions"][5:] == [
        "item",
        "special",
        "broken",
        "slow",
        "end",
        "blocked",
        "stuck",
        "disabled",
    ]


def test_route_parameters_query_method_and_body_reach_the_function_and_come_back(
    host: HostProcess,
) -> None:
    answer = host.request("/api/items/17?color=red", "PUT", KEY, b"\x00body\xff")

    assert answer.status == 201
    assert answer.body == b"\x00body\xff"
    assert answer.headers["Content-Type"] == "application/x-echo"
    assert answer.headers["x-id"] == "17"
    assert answer.headers["x-method"] == "PUT"
    assert answer.headers["x-color"] == "red"


def test_a_compressed_body_is_handed_over_as_it_came(host: HostProcess) -> None:
    packed = gzip.compress(b"body")

    answer = host.request("/api/items/17", "PUT", KEY | {"Content-Encoding": "gzip"}, packed)

    assert (answer.status, answer.body) == (201, packed)


def test_a_route_constraint_keeps_other_paths_out(host: HostProcess) -> None:
    assert host.request("/api/items/seventeen", "PUT", KEY, b"").status == 404


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
def test_a_method_the_function_does_not_take_is_404(host: HostProcess, method: str) -> None:
    assert host.request("/api/items/17", method, KEY).status == 404


@pytest.mark.parametrize("path", ["/API/Items/special", "/api/iTEMS/SPECIAL"])
def test_the_case_of_a_path_does_not_matter(host: HostProcess, path: str) -> None:
    answer = host.request(path)

    assert (answer.status, answer.body) == (200, b"special")


def test_a_literal_route_goes_before_one_with_a_parameter(host: HostProcess) -> None:
    answer = host.request("/api/items/special")

    assert (answer.status, answer.body) == (200, b"special")


@pytest.mark.parametrize("query", ["", "?code=wrong", "?code=", "?code=for-slow"])
def test_a_missing_or_wrong_key_is_401(host: HostProcess, query: str) -> None:
    assert host.request(f"/api/items/1{query}", "POST", body=b"x").status == 401


@pytest.mark.parametrize("key", ["for-item", "for-all", "lockstep-local"])
def test_a_function_opens_to_its_own_key_to_the_hosts_and_to_the_master_key(
    host: HostProcess, key: str
) -> None:
    answer = host.request("/api/items/1", "POST", {"x-functions-key": key}, b"x")

    assert (answer.status, answer.body) == (201, b"x")


@pytest.mark.parametrize(("key", "status"), [("for-slow", 401), ("for-all", 401)])
def test_a_function_of_level_admin_opens_to_the_master_key_only(
    host: HostProcess, key: str, status: int
) -> None:
    assert host.request("/api/slow/0", headers={"x-functions-key": key}).status == status


def test_a_key_in_the_header_hides_one_in_the_query(host: HostProcess) -> None:
    path = "/api/items/1?code=lockstep-local"

    assert host.request(path, "POST", {"x-functions-key": "wrong"}, b"x").status == 401


def test_a_function_that_is_switched_off_is_not_there_but_for_the_master_key(
    host: HostProcess,
) -> None:
    assert host.request("/api/disabled").status == 404
    assert host.request("/api/disabled", headers={"x-functions-key": "for-all"}).status == 404
    assert host.request("/api/disabled", headers=KEY).body == b"all the same"


@pytest.mark.parametrize("path", ["/api/slow/..", "/api/slow/%2e%2E", "/api/../items/special"])
def test_a_path_to_what_is_above_is_404(host: HostProcess, path: str) -> None:
    assert host.request(path, headers=KEY).status == 404


def test_the_key_may_stand_in_the_query(host: HostProcess) -> None:
    assert host.request("/api/items/1?code=lockstep-local", "POST", body=b"x").body == b"x"


def test_a_function_that_raises_is_500_and_its_reason_is_in_the_log(host: HostProcess) -> None:
    answer = host.request("/api/broken")

    assert (answer.status, answer.body) == (500, b"")
    lines = [line for line in host.log() if line["function"] == "broken"]
    assert any("broken on purpose" in line["message"] for line in lines)


def test_bytes_that_are_no_text_pass_through(host: HostProcess) -> None:
    assert host.request("/api/slow/0", headers=KEY).body == b"\x00\xff"


def test_the_status_names_the_process(host: HostProcess) -> None:
    status = json.loads(host.request("/admin/host/status", headers=KEY).body)

    assert status["state"] == "Running"
    assert status["extra"] == {
        "pid": host.process.pid,
        "worker": host.worker(),
        "region": "east",
    }


def test_the_list_of_functions_carries_their_bindings_with_settings_put_in(
    host: HostProcess,
) -> None:
    answer = host.request("/admin/functions", headers=KEY)
    found = {entry["name"]: entry for entry in json.loads(answer.body)}
    one = json.loads(host.request("/admin/functions/receive", headers=KEY).body)

    assert list(found) == host.ready["functions"]
    assert one == found["receive"]
    assert one["config"]["bindings"][0]["queueName"] == "sample"
    assert [name for name, entry in found.items() if entry["isDisabled"]] == ["disabled"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/admin/host/status"),
        ("GET", "/admin/functions"),
        ("GET", "/admin/functions/receive"),
        ("POST", "/admin/functions/by_hand"),
    ],
)
def test_the_admin_endpoints_ask_for_the_master_key(
    host: HostProcess, method: str, path: str
) -> None:
    lesser = {"x-functions-key": "for-all"}

    assert host.request(path, method).status == 401
    assert host.request(path, method, lesser).status == 403
    assert host.request("/admin/host/ping").status == 200


def test_a_manual_trigger_runs_with_its_input_and_prints_into_the_log(host: HostProcess) -> None:
    answer = host.request("/admin/functions/by_hand", "POST", KEY, b'{"input": "hello"}')

    assert answer.status == 202
    assert eventually(lambda: host.seen("manual")) == ["hello"]
    lines = {line["message"]: line for line in host.log() if line["function"] == "by_hand"}
    assert lines["printed by the app"]["level"] == "info"
    assert lines["said by the app"]["level"] == "warning"


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [("nobody", b"", 404), ("receive", b"", 400), ("by_hand", b"[1]", 400)],
)
def test_what_cannot_be_run_by_hand_is_refused(
    host: HostProcess, name: str, body: bytes, status: int
) -> None:
    assert host.request(f"/admin/functions/{name}", "POST", KEY, body).status == status


def test_a_timer_ticks_on_startup_and_by_its_schedule(host: HostProcess) -> None:
    ticks = eventually(lambda: len(host.seen("timers")) >= 3 and host.seen("timers"))

    assert ticks
    assert ticks[0] == {
        "past_due": False,
        "schedule_status": {},
        "schedule": {"AdjustForDST": True},
    }


@pytest.mark.parametrize(
    "how", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.proof)]
)
def test_a_signal_ends_the_host_with_status_0_and_one_line_on_stdout(
    tmp_path: Path, how: signal.Signals
) -> None:
    with running_host(tmp_path) as host:
        host.request("/admin/functions/by_hand", "POST", KEY, b"")
        eventually(lambda: host.seen("manual"))

        assert host.end(how) == 0
        assert host.process.stdout is not None
        assert host.process.stdout.read() == ""


def test_the_end_of_stdin_ends_the_host(tmp_path: Path) -> None:
    with running_host(tmp_path) as host:
        assert host.process.stdin is not None

        host.process.stdin.close()

        assert wait_for_end(host.process, seconds=60) == 0

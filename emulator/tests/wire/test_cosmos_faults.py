"""Faults of the account as the unchanged azure-cosmos client feels them."""

import threading
import time
from collections.abc import Iterator

import pytest
from azure.core.exceptions import AzureError, ServiceResponseError
from azure.cosmos.exceptions import CosmosHttpResponseError, CosmosResourceExistsError

from local.faults import Action, Fault
from wire.cosmos_account import THREE_REGIONS, RunningAccount, running_account

pytestmark = pytest.mark.wire

ENTRY = {"id": "000", "session": "DL1742"}
REFRESH_SECONDS_MAX = 20.0


@pytest.fixture
def account() -> Iterator[RunningAccount]:
    with running_account() as running:
        running.journal.read()
        yield running


def stored(account: RunningAccount) -> list[str]:
    """The ids in the journal."""
    return [one["id"] for one in account.journal.read_all_items()]


def test_a_dropped_answer_leaves_the_write_applied(account: RunningAccount) -> None:
    account.arm(Action.DROP_ANSWER, "create")

    with pytest.raises(ServiceResponseError):
        account.journal.create_item(dict(ENTRY))

    assert stored(account) == ["000"]
    assert account.counted("create") == {"dropped": 1}


def test_a_dropped_answer_leaves_the_batch_applied(account: RunningAccount) -> None:
    account.arm(Action.DROP_ANSWER, "batch")

    with pytest.raises(ServiceResponseError):
        account.journal.execute_item_batch([("create", (dict(ENTRY),))], partition_key="DL1742")

    assert stored(account) == ["000"]


@pytest.mark.parametrize("status", [408, 449, 500])
def test_an_injected_status_refuses_a_create_and_applies_nothing(
    account: RunningAccount, status: int
) -> None:
    account.arm(Action.STATUS, "create", status=status)

    with pytest.raises(CosmosHttpResponseError) as failure:
        account.journal.create_item(dict(ENTRY))

    assert failure.value.status_code == status
    assert stored(account) == []
    assert account.counted("create") == {str(status): 1}


def test_the_client_waits_out_a_429_for_as_long_as_it_is_told(account: RunningAccount) -> None:
    account.arm(Action.STATUS, "create", status=429, seconds=0.2, times=2)

    started = time.monotonic()
    account.journal.create_item(dict(ENTRY))

    assert time.monotonic() - started >= 0.4
    assert account.counted("create") == {"429": 2, "201": 1}


def test_the_client_repeats_a_create_after_a_503(account: RunningAccount) -> None:
    account.arm(Action.STATUS, "create", status=503)

    account.journal.create_item(dict(ENTRY))

    assert account.counted("create") == {"503": 1, "201": 1}
    with pytest.raises(CosmosResourceExistsError):
        account.journal.create_item(dict(ENTRY))


@pytest.mark.parametrize(
    ("status", "substatus", "counts"),
    [
        (429, None, {"429": 1, "200": 1}),
        (503, None, {"503": 1, "200": 1}),
        (408, None, {"408": 1, "200": 1}),
        (500, None, {"500": 1, "200": 1}),
        (404, 1002, {"404": 1, "200": 1}),
        (449, None, {"449": 1}),
        (410, 1002, {"410": 1}),
        (404, None, {"404": 1}),
    ],
)
def test_what_the_client_makes_of_a_refused_read_in_one_region(
    status: int, substatus: int | None, counts: dict[str, int]
) -> None:
    with running_account(config=THREE_REGIONS) as account:
        account.journal.create_item(dict(ENTRY))
        account.arm(Action.STATUS, "read", status=status, substatus=substatus, region="east")

        if "200" in counts:
            assert account.journal.read_item("000", "DL1742")["id"] == "000"
        else:
            with pytest.raises(CosmosHttpResponseError) as failure:
                account.journal.read_item("000", "DL1742")
            assert failure.value.status_code == status
            assert failure.value.sub_status == substatus
        assert account.counted("read") == counts


def await_refresh() -> None:
    """Wait for azure-cosmos to have asked where the account is: it does so in the background."""
    for thread in threading.enumerate():
        if thread.name == "cosmos-endpoint-refresh":
            thread.join(REFRESH_SECONDS_MAX)


def test_the_client_asks_anew_where_to_write_after_a_403_with_3() -> None:
    with running_account(config=THREE_REGIONS) as account:
        account.journal.read()
        await_refresh()
        before = account.counters.snapshot()["cosmos"]["account"]["200"]["count"]
        account.arm(Action.STATUS, "create", status=403, substatus=3)

        account.journal.create_item(dict(ENTRY))

        assert account.counted("create") == {"403": 1, "201": 1}
        await_refresh()
        assert account.counters.snapshot()["cosmos"]["account"]["200"]["count"] > before


def test_a_fault_in_one_region_spares_the_others() -> None:
    with running_account(config=THREE_REGIONS) as account:
        account.arm(Action.STATUS, "create", status=449, region="west")

        account.journal.create_item(dict(ENTRY))

        assert account.counted("create") == {"201": 1}


def test_a_dropped_connection_leaves_nothing_applied(account: RunningAccount) -> None:
    account.arm(Action.DROP_CONNECTION, "create")

    with pytest.raises(AzureError):
        account.journal.create_item({"id": "a", "session": "s"})

    assert account.counted("create") == {"down": 1}
    assert list(account.journal.read_all_items()) == []


def test_a_delay_holds_one_operation_back(account: RunningAccount) -> None:
    account.arm(Action.DELAY, "create", seconds=0.3)

    started = time.monotonic()
    account.journal.create_item(dict(ENTRY))

    assert time.monotonic() - started >= 0.3
    assert stored(account) == ["000"]


def test_a_fault_befalls_only_the_operation_it_names(account: RunningAccount) -> None:
    account.arm(Action.STATUS, "delete", status=500)

    account.journal.create_item(dict(ENTRY))
    account.journal.read_item("000", "DL1742")

    with pytest.raises(CosmosHttpResponseError):
        account.journal.delete_item("000", "DL1742")
    assert stored(account) == ["000"]


def test_while_the_account_is_down_nothing_is_applied_and_then_it_is_back(
    account: RunningAccount,
) -> None:
    account.faults.arm(Fault("cosmos", Action.DOWN))

    with pytest.raises(AzureError):
        account.journal.create_item(dict(ENTRY))
    account.faults.disarm()

    assert stored(account) == []
    account.journal.create_item(dict(ENTRY))
    assert stored(account) == ["000"]

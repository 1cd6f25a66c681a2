"""Loaded by pytest before the tests of azure-cosmos: their configuration, for the local account.

Their package of test utilities is in no index, so the two names they take from it stand here.
"""

import sys
from functools import partial
from types import ModuleType
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)  # before the suite's own conftest.py
def pytest_load_initial_conftests() -> None:
    """Put the configuration in place; the tests read it when they are imported."""
    for name in ("", ".azure_recorded_testcase", ".helpers"):
        sys.modules[f"devtools_testutils{name}"] = ModuleType(f"devtools_testutils{name}")
    sys.modules["devtools_testutils.azure_recorded_testcase"].__dict__["get_credential"] = no_token
    sys.modules["devtools_testutils.helpers"].__dict__["is_live"] = is_live
    import test_config  # type: ignore[import-not-found]

    config = test_config.TestConfig
    config.is_emulator = True
    config.local_host = config.host
    config.credential = config.credential_async = config.masterKey
    config.create_single_partition_prefix_pk_container_if_not_exist = partial(
        make_container, config, config.TEST_SINGLE_PARTITION_PREFIX_PK_CONTAINER_ID, 400
    )
    config.create_multi_partition_prefix_pk_container_if_not_exist = partial(
        make_container, config, config.TEST_MULTI_PARTITION_PREFIX_PK_CONTAINER_ID, 30_000
    )


def no_token(**_options: Any) -> None:
    """Give no token: the account knows its master key only."""


def is_live() -> bool:
    return True


def make_container(config: Any, name: str, throughput: int, client: Any) -> Any:
    """A container whose key should have two paths, here with the first one alone.

    Keys of several paths are refused, and every process would end with that at its start. A test
    that sends such a key is refused by name later.
    """
    from azure.cosmos import PartitionKey

    database = config.create_database_if_not_exist(client)
    key = PartitionKey(config.TEST_CONTAINER_PREFIX_PARTITION_KEY_PATH[0])
    return database.create_container_if_not_exists(name, key, offer_throughput=throughput)

"""Loaded by pytest before the tests of azure-cosmos: their configuration, for the local account.

Their package of test utilities is in no index, so the two names they take from it stand here.
"""

import sys
from types import ModuleType
from typing import Any


def prepare() -> None:
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
    config.create_single_partition_prefix_pk_container_if_not_exist = make_no_container
    config.create_multi_partition_prefix_pk_container_if_not_exist = make_no_container


def no_token(**_options: Any) -> None:
    """The account knows its master key only."""


def is_live() -> bool:
    return True


def make_no_container(_client: Any) -> None:
    """Keys of several paths are refused, and every process would end with that at its start."""


prepare()

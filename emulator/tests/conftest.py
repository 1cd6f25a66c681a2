"""Which tests are chosen: those of minutes run with TESTS_PROOF=1, or when their file is named."""

import os
import sys
from pathlib import Path

import pytest

import local

# The benchmark and the conformance suites are not installed, so they are looked for last: `local`
# above is the one that is installed, or else the import has failed.
assert local.__file__
sys.path.append(str(Path(__file__).parents[1]))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("TESTS_PROOF") == "1":
        return
    named = {Path(argument.partition("::")[0]).resolve() for argument in config.args}
    left_out = [
        item for item in items if item.get_closest_marker("proof") and item.path not in named
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]

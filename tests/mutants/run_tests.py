"""`python -m tests.mutants.run_tests NAME FILE`: run tests on the engine with this mutant in it."""

import sys

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.loading import applied


def main(name: str, *arguments: str) -> int:
    """Pytest's exit status."""
    (mutant,) = (mutant for mutant in MUTANTS if mutant.name == name)
    with applied(mutant):
        return pytest.main([*arguments])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

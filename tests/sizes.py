"""Which tests run: a sample of each kind at every change, all of them before a release."""

import os
import random

# Set by `make proof`: every test, and every enumeration as a whole.
IS_PROOF = os.environ.get("TESTS_PROOF") == "1"

# So many seeds of each profile of the simulation are run by `make proof`. A run of another size
# takes some that follow each other from among the first of them, other ones each time: whatever
# fails then tells of the change at hand.
PROVED_SEEDS = 20_000
FIRST_SEEDS, SEEDS_IN_A_ROW = 5_000, 200
FIRST_SEED = "TESTS_FIRST_SEED"


def choose_first_seed() -> None:
    """Put it into the environment, which every process of the run inherits, unless one is there."""
    os.environ.setdefault(FIRST_SEED, str(random.randrange(FIRST_SEEDS - SEEDS_IN_A_ROW)))

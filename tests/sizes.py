"""Which tests run: a sample of each kind at every change, all of them before a release."""

import os

# Set by `make proof`: every test, and every enumeration as a whole.
IS_PROOF = os.environ.get("TESTS_PROOF") == "1"

# In this variable stands the first of those seeds of the simulation that differ from run to run.
FIRST_SEED, SEEDS_MAX = "TESTS_FIRST_SEED", 1_000_000

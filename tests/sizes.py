"""Which tests run: a sample of each kind at every change, all of them before a release."""

import os

# Set by `make proof`: every test, and every enumeration as a whole.
IS_PROOF = os.environ.get("TESTS_PROOF") == "1"

# The seeds of the simulation that differ from run to run begin with the one that stands here.
FIRST_SEED = "TESTS_FIRST_SEED"

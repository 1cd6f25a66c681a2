"""The suites by name."""

from tests.conformance.cosmos import COSMOS

SUITES = {"cosmos": COSMOS}

"""Azure on one machine for the tests of a module."""

from tests.cloud import adapters, cloud

__all__ = ["adapters", "cloud"]

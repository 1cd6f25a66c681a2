"""Test a handler as it will live: under duplicates, reordering, crashes and redelivery."""

from shared.testkit.asked import asked
from shared.testkit.exercise import Report, exercise
from shared.testkit.given import Found, Given, given

__all__ = ["Found", "Given", "Report", "asked", "exercise", "given"]

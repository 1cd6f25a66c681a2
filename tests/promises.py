"""Where each promise of docs/guarantees.md is held in memory, in well under a second a file."""

from collections.abc import Mapping

# All of them together take less than three seconds, so whoever changes the engine runs them first.
# Whatever takes longer, or starts a process, is named in docs/guarantees.md alone.
TESTS_BY_PROMISE: Mapping[str, tuple[str, ...]] = {
    "P1": (
        "tests/scenarios/test_when_a_region_is_unavailable.py",
        "tests/scenarios/test_when_a_send_is_in_doubt.py",
        "tests/unit/functions/test_recover.py",
    ),
    "P2": ("tests/scenarios/test_when_a_commit_is_in_doubt.py",),
    "P3": (
        "tests/unit/shared/test_journal.py",
        "tests/scenarios/test_when_a_number_is_missing.py",
    ),
    "P4": (
        "tests/unit/shared/test_handle.py",
        "tests/scenarios/test_when_a_second_producer_takes_over.py",
    ),
    "P5": (
        "tests/scenarios/test_when_a_commit_is_in_doubt.py",
        "tests/scenarios/test_when_a_queue_is_missing.py",
    ),
    "P6": (
        "tests/scenarios/test_when_a_region_is_unavailable.py",
        "tests/scenarios/test_when_a_queue_is_missing.py",
        "tests/scenarios/test_when_a_region_is_silent.py",
    ),
    "P7": ("tests/scenarios/test_when_nothing_fails.py",),
    "P8": (
        "tests/scenarios/test_when_a_state_is_large.py",
        "tests/unit/shared/test_publish.py",
    ),
    "P9": (
        "tests/scenarios/test_when_a_handler_fails.py",
        "tests/scenarios/test_when_something_stands_still.py",
        "tests/scenarios/test_when_the_broker_gives_up.py",
    ),
}

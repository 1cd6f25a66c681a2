import pytest

# Their assertions say what differs, as those of test modules do.
pytest.register_assert_rewrite("tests.e2e.stack")

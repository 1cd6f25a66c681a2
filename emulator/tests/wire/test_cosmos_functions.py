"""Built-in functions of queries, beyond those of conditions, have the values the service gives."""

from collections.abc import Iterator
from typing import Any

import pytest
from azure.cosmos.exceptions import CosmosHttpResponseError

from wire.cosmos_account import RunningAccount, running_account
from wire.cosmos_flights import run

pytestmark = pytest.mark.wire

MOMENT = "'2026-01-02T03:04:05.1234567Z'"


@pytest.fixture(scope="module")
def account() -> Iterator[RunningAccount]:
    with running_account() as running:
        running.flights.create_item({"id": "1", "tail": "N1", "n": 1.0, "l": [1, 2, 1], "s": "ab"})
        yield running


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("REGEXMATCH(c.tail, '^N[0-9]$')", True),
        ("REGEXMATCH(c.s, 'B')", False),
        ("REGEXMATCH(c.s, 'B', 'i')", True),
        ("TOSTRING(c.n)", "1"),
        ("TOSTRING(c.l)", "[1,2,1]"),
        ("TOSTRING(true)", "true"),
        ("TOSTRING(c.s)", "ab"),
        ("STRINGTONUMBER('12.5')", 12.5),
        ("STRINGTOBOOLEAN('true')", True),
        ("STRINGTOARRAY('[1,\"a\"]')", [1, "a"]),
        ("STRINGTOOBJECT('{\"a\":1}')", {"a": 1}),
        ("REVERSE(c.s)", "ba"),
        ("LTRIM('  a ')", "a "),
        ("RTRIM('  a ')", "  a"),
        ("ARRAY_CONCAT(c.l, ['x'])", [1, 2, 1, "x"]),
        ("ARRAY_SLICE(c.l, 1)", [2, 1]),
        ("ARRAY_SLICE(c.l, -2, 1)", [2]),
        ("SETUNION(c.l, [2, true])", [1, 2, True]),
        ("SETINTERSECT(c.l, [1, 3])", [1]),
        (
            "[SIGN(-2.5), SQRT(9), SQUARE(3), TRUNC(-2.5), POWER(2, 10), EXP(0)]",
            [-1, 3, 9, -2, 1024, 1],
        ),
        (f"DATETIMEPART('yyyy', {MOMENT})", 2026),
        (f"DATETIMEPART('mi', {MOMENT})", 4),
        (f"DATETIMEPART('ns', {MOMENT})", 123456700),
        (f"DATETIMETOTIMESTAMP({MOMENT})", 1767323045123),
        ("TIMESTAMPTODATETIME(1767323045123)", "2026-01-02T03:04:05.1230000Z"),
        ("DATETIMETOTICKS('1970-01-01T00:00:01.0000001Z')", 10000001),
        ("TICKSTODATETIME(10000001)", "1970-01-01T00:00:01.0000001Z"),
    ],
)
def test_a_function_has_its_value(account: RunningAccount, expression: str, expected: Any) -> None:
    assert run(account.flights, f"SELECT VALUE {expression} FROM c") == [expected]


@pytest.mark.parametrize(
    "expression",
    [
        "REGEXMATCH(c.n, '1')",
        "REGEXMATCH(c.s, 'a', 'q')",
        "TOSTRING(c.missing)",
        "STRINGTONUMBER('true')",
        "STRINGTONUMBER('1e400')",
        "STRINGTOARRAY('[NaN]')",
        "STRINGTOOBJECT('{')",
        "ARRAY_CONCAT(c.l, c.n)",
        "ARRAY_SLICE(c.s, 1)",
        "SQRT(-1)",
        "EXP(1000)",
        "POWER(-8, 1.5)",
        "DATETIMEPART('century', '2026-01-02T03:04:05Z')",
        "DATETIMETOTIMESTAMP('2026-02-30T03:04:05Z')",
        "DATETIMETOTIMESTAMP('2026-01-02')",
        "TIMESTAMPTODATETIME(1e18)",
    ],
)
def test_what_a_function_cannot_take_is_undefined(account: RunningAccount, expression: str) -> None:
    assert run(account.flights, f"SELECT VALUE {expression} FROM c") == []


def test_an_expression_that_is_none_is_refused(account: RunningAccount) -> None:
    with pytest.raises(CosmosHttpResponseError, match="not a regular expression"):
        run(account.flights, "SELECT VALUE RegexMatch(c.s, '(') FROM c")

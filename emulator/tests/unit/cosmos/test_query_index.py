"""Which conditions an index decides without a look at the items."""

import pytest

from local.cosmos.items.indexing import parse_policy
from local.cosmos.query.plan import is_served
from local.cosmos.sql.parser import parse_filter

POLICY = parse_policy(
    {
        "includedPaths": [{"path": "/owing/[]/?"}, {"path": "/head/?"}, {"path": "/plan/*"}],
        "excludedPaths": [{"path": "/*"}],
    }
)


@pytest.mark.parametrize(
    "condition",
    [
        "c.head = 1",
        "1 < c.head",
        "c.id != 'x'",
        "c.head IN (1, 2)",
        "c.head BETWEEN 1 AND 2",
        "NOT c.head = 1",
        "c.head = 1 OR c.plan.level > 300",
        "c.plan['level'] = 300",
        "IS_DEFINED(c.head)",
        "STARTSWITH(c.head, 'a', true)",
        "c.head LIKE 'a%'",
        "ARRAY_CONTAINS(c.owing, 'east')",
        "ARRAY_CONTAINS(c.plan.legs, {'from': 'JFK'}, true)",
        "ARRAY_CONTAINS(['a', 'b'], c.head)",
        "c.owing[0] = 'east'",
    ],
)
def test_conditions_on_indexed_paths_are_served(condition: str) -> None:
    assert is_served(parse_filter(f"FROM c WHERE {condition}"), POLICY)


@pytest.mark.parametrize(
    "condition",
    [
        "c.tail = 1",
        "c.head = 1 OR c.tail = 1",
        "c.head.deeper = 1",
        "c.owing = 'east'",
        "ARRAY_CONTAINS(c.head, 'east')",
        "ARRAY_CONTAINS(c.owing, {'to': 'east'}, true)",
        "ARRAY_CONTAINS(c.owing, c.head)",
        "LOWER(c.head) = 'a'",
        "c.head + 1 = 2",
        "c.head = c.id",
        "ARRAY_LENGTH(c.owing) = 1",
    ],
)
def test_other_conditions_need_a_look_at_every_item(condition: str) -> None:
    assert not is_served(parse_filter(f"FROM c WHERE {condition}"), POLICY)

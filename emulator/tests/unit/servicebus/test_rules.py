"""Filters, and how rules are read from and written for clients."""

import pytest
from proton import Message as AmqpMessage

from local.servicebus.rules import (
    CorrelationFilter,
    FalseFilter,
    FilterableProperties,
    SubscriptionRule,
    SystemProperty,
    TrueFilter,
    UnsupportedRule,
    decode_rules,
    encode_rules,
    read_filterable_properties,
    read_rule,
    write_rule,
)


def test_a_filter_compares_values_and_kinds_and_case() -> None:
    traits = FilterableProperties({SystemProperty.LABEL: "departed"}, {"gate": 7, "late": True})

    for system, application, expected in (
        ({SystemProperty.LABEL: "departed"}, {"gate": 7}, True),
        ({SystemProperty.LABEL: "Departed"}, {}, False),
        ({}, {"gate": "7"}, False),
        ({}, {"tail": None}, False),
        ({SystemProperty.TO: "east"}, {"gate": 7}, False),
    ):
        assert CorrelationFilter(system, application).matches(traits) is expected


def test_the_traits_of_a_message_are_its_properties_and_never_its_body() -> None:
    message = AmqpMessage(
        body={"gate": 8},
        id="m",
        address="east",
        subject="departed",
        group_id="N101",
        properties={"gate": 7},
    )

    assert read_filterable_properties(message.encode()) == FilterableProperties(
        {
            SystemProperty.MESSAGE_ID: "m",
            SystemProperty.TO: "east",
            SystemProperty.LABEL: "departed",
            SystemProperty.SESSION_ID: "N101",
        },
        {"gate": 7},
    )


@pytest.mark.parametrize(
    "description",
    [
        {"sql-filter": {"expression": "gate > 7"}},
        {"sql-filter": {"expression": "1=1"}, "sql-rule-action": {"expression": "SET a = 1"}},
    ],
)
def test_sql_beyond_true_and_false_is_not_honoured(
    description: dict[str, dict[str, str]],
) -> None:
    with pytest.raises(UnsupportedRule):
        read_rule("r", description)


def test_a_rule_is_read_as_it_was_asked_for() -> None:
    asked = {"label": "departed", "to": None, "properties": {"gate": 7}}

    assert read_rule("r", {"correlation-filter": asked}) == SubscriptionRule(
        "r", CorrelationFilter({SystemProperty.LABEL: "departed"}, {"gate": 7})
    )
    assert read_rule("r", {"sql-filter": {"expression": "1 = 1"}}) == SubscriptionRule(
        "r", TrueFilter()
    )
    assert read_rule("r", {"sql-filter": {"expression": "1=0"}}) == SubscriptionRule(
        "r", FalseFilter()
    )


def test_a_correlation_filter_is_listed_with_its_properties_in_the_service_s_order() -> None:
    given = CorrelationFilter(
        {SystemProperty.MESSAGE_ID: "m", SystemProperty.CONTENT_TYPE: "text"}, {"gate": 7}
    )

    description = write_rule(SubscriptionRule("r", given))["rule-description"]

    listed, _, name = description.value
    assert name == "r"
    assert listed.value == [None, "m", None, None, None, None, None, "text", {"gate": 7}]


def test_application_properties_whose_keys_are_not_text_are_not_seen() -> None:
    binary_key = b"\x00\x53\x74\xc1\x07\x02\xa0\x01k\xa1\x01v"

    assert read_filterable_properties(binary_key) == FilterableProperties({}, {})


def test_rules_that_are_kept_are_read_back_with_the_types_of_their_values() -> None:
    rules = [
        SubscriptionRule("all", TrueFilter()),
        SubscriptionRule("none", FalseFilter()),
        SubscriptionRule(
            "some",
            CorrelationFilter(
                {SystemProperty.LABEL: "departed", SystemProperty.SESSION_ID: "N101"}
            ),
        ),
        SubscriptionRule(
            "typed", CorrelationFilter({}, {"gate": 7, "late": True, "load": 0.5, "to": "IAH"})
        ),
    ]

    again = decode_rules(encode_rules(rules))

    assert again == rules
    assert decode_rules(encode_rules([])) == []


@pytest.mark.parametrize(
    "description",
    [
        7,
        {"sql-filter": "1=1"},
        {"correlation-filter": 7},
        {"correlation-filter": {"properties": [1]}},
    ],
)
def test_a_rule_that_is_no_map_where_it_must_be_one_is_refused(description: object) -> None:
    with pytest.raises(TypeError, match="is no map"):
        read_rule("late", description)

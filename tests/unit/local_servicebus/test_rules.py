"""Filters, and how rules are read from and written for clients."""

import pytest
from proton import Message as AmqpMessage

from local.servicebus.rules import CorrelationFilter, FalseFilter, NotHonoured, Rule, TrueFilter
from local.servicebus.rules_wire import decode_rules, encode_rules, read_rule, write_rule
from local.servicebus.traits import Trait, Traits, read_traits


def test_a_filter_compares_values_and_kinds_and_case() -> None:
    traits = Traits({Trait.LABEL: "departed"}, {"gate": 7, "late": True})

    for system, application, expected in (
        ({Trait.LABEL: "departed"}, {"gate": 7}, True),
        ({Trait.LABEL: "Departed"}, {}, False),
        ({}, {"gate": "7"}, False),
        ({}, {"tail": None}, False),
        ({Trait.TO: "east"}, {"gate": 7}, False),
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

    assert read_traits(message.encode()) == Traits(
        {
            Trait.MESSAGE_ID: "m",
            Trait.TO: "east",
            Trait.LABEL: "departed",
            Trait.SESSION_ID: "N101",
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
    with pytest.raises(NotHonoured):
        read_rule("r", description)


def test_a_rule_is_read_as_it_was_asked_for() -> None:
    asked = {"label": "departed", "to": None, "properties": {"gate": 7}}

    assert read_rule("r", {"correlation-filter": asked}) == Rule(
        "r", CorrelationFilter({Trait.LABEL: "departed"}, {"gate": 7})
    )
    assert read_rule("r", {"sql-filter": {"expression": "1 = 1"}}) == Rule("r", TrueFilter())
    assert read_rule("r", {"sql-filter": {"expression": "1=0"}}) == Rule("r", FalseFilter())


def test_a_correlation_filter_is_listed_with_its_properties_in_the_service_s_order() -> None:
    given = CorrelationFilter({Trait.MESSAGE_ID: "m", Trait.CONTENT_TYPE: "text"}, {"gate": 7})

    description = write_rule(Rule("r", given))["rule-description"]

    listed, _, name = description.value
    assert name == "r"
    assert listed.value == [None, "m", None, None, None, None, None, "text", {"gate": 7}]


def test_application_properties_whose_keys_are_not_text_are_not_seen() -> None:
    binary_key = b"\x00\x53\x74\xc1\x07\x02\xa0\x01k\xa1\x01v"

    assert read_traits(binary_key) == Traits({}, {})


def test_rules_that_are_kept_are_read_back_with_the_types_of_their_values() -> None:
    rules = [
        Rule("all", TrueFilter()),
        Rule("none", FalseFilter()),
        Rule("some", CorrelationFilter({Trait.LABEL: "departed", Trait.SESSION_ID: "N101"})),
        Rule("typed", CorrelationFilter({}, {"gate": 7, "late": True, "load": 0.5, "to": "IAH"})),
    ]

    again = decode_rules(encode_rules(rules))

    assert again == rules
    assert decode_rules(encode_rules([])) == []

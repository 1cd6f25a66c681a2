"""Connection strings of namespaces."""

import pytest

from local.functions_host.clients.service_bus import NamespaceAddress

EMULATOR = (
    "Endpoint=sb://localhost:5673;SharedAccessKeyName=Root;"
    "SharedAccessKey=a2V5PT0=;UseDevelopmentEmulator=true;"
)


def test_host_port_and_key_are_read() -> None:
    assert NamespaceAddress.parse(EMULATOR) == NamespaceAddress(
        "localhost", 5673, "Root", "a2V5PT0="
    )


def test_without_a_port_the_amqp_port_is_taken() -> None:
    assert NamespaceAddress.parse(EMULATOR.replace(":5673", "")).port == 5672


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ("UseDevelopmentEmulator=true", "UseDevelopmentEmulator"),
        ("Endpoint=sb://localhost:5673;", "Endpoint"),
        ("SharedAccessKeyName=Root;", "SharedAccessKeyName"),
    ],
)
def test_a_string_that_lacks_a_part_is_an_error_that_names_it(part: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        NamespaceAddress.parse(EMULATOR.replace(part, ""))


def test_a_token_names_the_entity_and_the_key_but_not_the_secret() -> None:
    token = NamespaceAddress.parse(EMULATOR).token("flights")

    assert "flights" in token
    assert token.endswith("&skn=Root")
    assert "a2V5" not in token

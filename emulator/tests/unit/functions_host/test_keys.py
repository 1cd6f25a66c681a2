"""Which key opens what."""

from local.functions_host.config.keys import DEVELOPMENT_KEY, Keys

KEYS = Keys.read(
    {
        "host.master": "m",
        "host.function.default": "h1",
        "host.function.other": "h2",
        "functions.Take.default": "t",
        "functions.give.default": "g",
        "functions.give.empty": "",
        "host.systemKey.durabletask_extension": "d",
    }
)


def test_without_settings_one_key_opens_everything() -> None:
    keys = Keys.read({})

    assert keys.open_function(DEVELOPMENT_KEY, "take")
    assert keys.open_admin(DEVELOPMENT_KEY)
    assert keys.of_extension("durabletask_extension") == DEVELOPMENT_KEY
    assert not keys.open_function(None, "take")
    assert not keys.open_function("", "take")


def test_a_function_is_opened_by_its_own_keys_the_keys_of_the_host_and_the_master_key() -> None:
    opening = {
        key
        for key in ("m", "h1", "h2", "t", "g", "d", "", None, DEVELOPMENT_KEY)
        if KEYS.open_function(key, "take")
    }

    assert opening == {"m", "h1", "h2", "t"}


def test_the_admin_endpoints_are_opened_by_the_master_key_only() -> None:
    assert [key for key in ("m", "h1", "t", "d", None) if KEYS.open_admin(key)] == ["m"]


def test_an_extension_is_opened_by_its_own_key_and_the_master_key() -> None:
    assert [
        key
        for key in ("m", "h1", "t", "d", None)
        if KEYS.open_extension(key, "durabletask_extension")
    ] == ["m", "d"]

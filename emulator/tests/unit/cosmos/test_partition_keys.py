"""Partition keys: one canonical form, and the place on the ring that all clients compute."""

from typing import Any

import pytest

from local.cosmos.items.partitions import (
    UNDEFINED,
    KeyPath,
    KeyRange,
    canonicalize,
    hash_key,
    parse_key_header,
    parse_key_path,
)
from local.cosmos.responses import RequestRefused


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ("a", "3A5381E1114EB8D3FCC90795045B49B7"),
        ("parcel-42", "35878F32D5810D5B4CC748237AE09392"),
        ("x" * 15, "2B275C18C408A03A0A53709CD6F5829A"),
        ("x" * 16, "0BE09FB42A423996BAA4B9E2F43C323A"),
        ("é" * 40, "341989B5942C57AA1A8025DDF22D04A3"),
        (1, "20CD98B339BA78A5D0CF6953B87070B0"),
        (1.5, "35C5DDEB6C795D16A9963C73C54E97BC"),
        (True, "0E711127C5B5A8E4726AC6DD306A3E59"),
        (False, "2FE1BE91E90A3439635E0E9E37361EF2"),
        (None, "378867E4430E67857ACE5C908374FE16"),
    ],
)
def test_a_key_hashes_to_the_place_azure_cosmos_computes(value: Any, place: str) -> None:
    assert hash_key(canonicalize(value)) == place


def test_numbers_that_are_equal_are_one_key() -> None:
    assert canonicalize(1.0) == canonicalize(1)
    assert canonicalize("1") != canonicalize(1)
    assert canonicalize(True) != canonicalize(1)


def test_a_nested_path_is_followed() -> None:
    path = KeyPath(("a", "b"))

    assert path.read({"a": {"b": "x"}}) == '"x"'
    assert path.read({"a": 1}) == UNDEFINED
    assert path.read({}) == UNDEFINED


@pytest.mark.parametrize("header", ["", "x", "[]", '["a","b"]', '{"a":1}', "[[1]]"])
def test_a_header_that_holds_no_single_key_is_refused(header: str) -> None:
    with pytest.raises(RequestRefused):
        parse_key_header(header)


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        (None, "required"),
        ({"paths": []}, "required"),
        ({"paths": ["/a", "/b"], "kind": "MultiHash", "version": 2}, "hierarchical"),
        ({"paths": ["/a"], "kind": "Hash", "version": 1}, "version 1"),
    ],
)
def test_a_definition_that_is_not_offered_is_refused_by_name(definition: Any, reason: str) -> None:
    with pytest.raises(RequestRefused, match=reason):
        parse_key_path(definition)


def test_a_range_is_half_open() -> None:
    place = hash_key(canonicalize("a"))

    assert KeyRange(place, place + "FF").covers(canonicalize("a"))
    assert not KeyRange("", place).covers(canonicalize("a"))

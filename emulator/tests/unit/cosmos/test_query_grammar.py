"""The grammar of queries: names that are keywords elsewhere, what binds more, what errors say."""

import pytest

from local.cosmos.responses import RequestRefused
from local.cosmos.sql.parser import parse_filter, parse_query, parse_tree
from local.cosmos.sql.syntax import (
    Arithmetic,
    Comparison,
    Expression,
    Literal,
    Logical,
    Negation,
    PropertyPath,
)


def condition_of(text: str) -> Expression:
    return parse_filter(f"FROM c WHERE {text}")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("SELECT VALUE c.order.value FROM c", ("order", "value")),
        ("SELECT VALUE c.from FROM c", ("from",)),
        ("select value top.in from items top", ("in",)),
        ("SELECT VALUE C.a FROM items AS C", ("a",)),
    ],
)
def test_a_keyword_is_a_name_where_a_name_is_wanted(text: str, path: tuple[str, ...]) -> None:
    assert parse_query(text, {}).selection == PropertyPath(path)


def test_a_keyword_may_name_what_is_shown() -> None:
    query = parse_query("SELECT c.a AS order, c.b AS value FROM c", {})

    assert query.texts.value == '{"order": c.a, "value": c.b}'


def test_a_keyword_ends_where_the_word_does() -> None:
    with pytest.raises(RequestRefused, match="ORc at position 21"):
        condition_of("c.a = 1 ORc.b = 2")


def test_and_binds_more_than_or_and_products_more_than_sums() -> None:
    a, b, one = PropertyPath(("a",)), PropertyPath(("b",)), Literal(1)

    assert condition_of("c.a or c.b AND not c.a") == Logical(
        "OR", (a, Logical("AND", (b, Negation(a))))
    )
    assert condition_of("c.a - c.b * 1 + -1 <> 1") == Comparison(
        "!=",
        Arithmetic("+", Arithmetic("-", a, Arithmetic("*", b, one)), Literal(-1)),
        one,
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT c.a x FROM c", "syntax error at 11: FROM expected, not x"),
        ("SELECT *", "syntax error at 8: FROM expected, not the end of the query"),
        ("FROM c", "syntax error at 0: SELECT expected, not FROM"),
        ("SELECT * FROM c ORDER c.a", "syntax error at 22: BY expected, not c"),
        ("SELECT * FROM c OFFSET 1", "syntax error at 24: LIMIT expected"),
        ("SELECT * FROM c WHERE c.a = 'x", 'syntax error at 28: "\'"'),
        ("SELECT * FROM c WHERE (c.a", "the end of the query at position 26"),
        ("SELECT * FROM c WHERE c.a ^ 1 = 0", r"\^ at position 26"),
        ("SELECT * FROM c WHERE c.a IN (SELECT 1 FROM c)", "SELECT at position 30"),
        ("SELECT * FROM c WHERE c.a = 1 GROUP BY c.a", "GROUP at position 30"),
    ],
)
def test_an_error_names_the_place_and_what_is_wrong_there(text: str, reason: str) -> None:
    with pytest.raises(RequestRefused, match=reason):
        parse_query(text, {})


def test_a_text_is_parsed_once_whatever_its_parameters_are() -> None:
    text = "SELECT VALUE @once FROM c"
    before = parse_tree.cache_info().misses

    shown = [parse_query(text, {"@once": value}).selection for value in (1, "x", [2])]

    assert shown == [Literal(1), Literal("x"), Literal([2])]
    assert parse_tree.cache_info().misses == before + 1

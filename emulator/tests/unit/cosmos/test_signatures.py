"""The master-key signature against the example Microsoft publishes."""

import pytest

from local.cosmos.responses import RequestRefused
from local.cosmos.server import MasterKey

# learn.microsoft.com/rest/api/cosmos-db/access-control-on-cosmosdb-resources, "Example encoding"
KEY = "dsZQi3KtZmCv1ljt3VNWNm7sQUF1y5rJfC6kv5JiwvW0EndXdDku/dkKBp8/ufDToSxLzR4y+O/0H/t4bQtVNw=="
DATE = "Thu, 27 Apr 2017 00:51:12 GMT"
SIGNATURE = "c09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu+c+c="
REQUEST = {"verb": "GET", "resource_type": "dbs", "link": "dbs/ToDoList", "date": DATE}


def test_the_published_example_is_reproduced() -> None:
    assert MasterKey(KEY).sign("GET", "dbs", "dbs/ToDoList", DATE) == SIGNATURE


def test_the_published_header_is_accepted() -> None:
    header = "type%3dmaster%26ver%3d1.0%26sig%3dc09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu%2bc%2bc%3d"

    MasterKey(KEY).check(header, **REQUEST)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (None, "missing"),
        ("", "missing"),
        (f"type=aad&ver=1.0&sig={SIGNATURE}", "'aad'"),
        ("type=master&ver=1.0&sig=AAAA", "does not match"),
        ("type=master&ver=1.0", "does not match"),
        ("gibberish", "None"),
    ],
)
def test_anything_else_is_unauthorized(header: str | None, reason: str) -> None:
    with pytest.raises(RequestRefused, match=reason) as refusal:
        MasterKey(KEY).check(header, **REQUEST)

    assert refusal.value.status == 401


def test_a_signature_fits_only_the_request_it_was_made_for() -> None:
    header = f"type=master&ver=1.0&sig={SIGNATURE}"

    with pytest.raises(RequestRefused):
        MasterKey(KEY).check(header, **{**REQUEST, "link": "dbs/Other"})

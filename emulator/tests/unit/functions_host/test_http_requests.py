"""What a function is given of an HTTP request."""

from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from local.functions_host.triggers.http import read_request


async def test_a_header_that_is_given_twice_is_one_with_a_comma_between() -> None:
    headers = CIMultiDict([("Prefer", "wait=1"), ("x-id", "17"), ("prefer", "return=minimal")])

    read = await read_request(make_mocked_request("GET", "/api/items", headers=headers))

    assert read.http.headers == {"prefer": "wait=1,return=minimal", "x-id": "17"}

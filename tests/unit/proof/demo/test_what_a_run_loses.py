"""What is lost is what was asked for, and it comes back; whoever posts meanwhile goes on."""

from collections.abc import Iterator
from unittest.mock import MagicMock, call

import pytest
from werkzeug import Request, Response

from local.testing.cloud import reserve_ports
from local.testing.patience import until
from proof.demo import posts as module
from proof.demo.loss import LostPart, lose
from proof.demo.posts import BODY, Posts
from proof.testbed.command import RunFailed
from proof.testbed.flights import FlightMessage, identify_body
from proof.testbed.serving import serving

KILL, START = call.act("east", "kill"), call.act("east", "start")
WAITED = call.wait()
MOVED, MOVED_BACK = call.move_writes("west"), call.move_writes("east")


def armed(action: str, component: str, **rest: str) -> object:
    return call.arm({"component": component, "action": action, **rest})


@pytest.mark.parametrize(("is_silent", "action"), [(False, "down"), (True, "silent")])
def test_when_a_part_is_lost_the_whole_of_it_goes_and_comes_back(
    is_silent: bool, action: str
) -> None:
    bus = armed(action, "servicebus.east")
    journal = [armed(action, "cosmos", region="east"), WAITED, MOVED]
    expected = {
        LostPart.HOST: ([KILL], [START]),
        LostPart.NAMESPACE: ([bus], [call.clear(7)]),
        LostPart.JOURNAL: (journal, [call.clear(7), MOVED_BACK]),
        LostPart.REGION: (
            [KILL, bus, *journal],
            [call.clear(7), MOVED_BACK, call.clear(7), START],
        ),
    }
    for loss in LostPart:
        control = MagicMock()
        control.arm.return_value = 7
        regions = ("east", "west", "north")
        with lose(control, loss, regions, is_silent=is_silent, wait=control.wait):
            lost = [*control.mock_calls]
        assert (lost, control.mock_calls[len(lost) :]) == expected[loss]
        assert ("journal" in loss.describe(is_silent=is_silent)) is loss.moves_writes


@pytest.fixture
def nobody() -> Iterator[str]:
    """The address of a host that takes no connections."""
    with reserve_ports() as port:
        yield f"http://127.0.0.1:{port}"


def test_when_a_region_is_gone_a_post_goes_to_the_next_until_it_is_accepted(nobody: str) -> None:
    asked: list[tuple[str, str, bytes]] = []

    def answer(request: Request) -> Response:
        asked.append((request.path, request.headers["Idempotency-Key"], request.get_data()))
        if len(asked) == 1:
            return Response("{}", 503)
        return Response('{"id": "m-1", "sequence": 0}', 202, mimetype="application/json")

    with serving(answer) as url:
        posts = Posts([nobody, url])
        posts.post("post-1-00", "post-1-00-0")

    assert asked == [("/api/sessions/post-1-00/messages", "post-1-00-0", BODY.encode())] * 2
    assert posts.accepted == [FlightMessage("post-1-00", 0, "m-1", identify_body(BODY))]
    assert (posts.refused, len(posts.seconds)) == (1, 4)


def test_when_a_feed_ends_early_the_posts_end_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the queues would never be empty, and the lost region would never come back."""
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    answer = '{"id": "m", "sequence": 0}'
    with serving(lambda _: Response(answer, 202, mimetype="application/json")) as url:
        posts = Posts([url])
        posts.start()
        until(posts.are_done, what="the posts to end")

    assert len(posts.accepted) == module.SESSIONS * module.POSTS_OF_SESSION_MAX


def test_when_a_post_never_will_be_accepted_the_run_could_not_be_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)
    with serving(lambda _: Response("{}", 403)) as url:
        posts = Posts([url])
        posts.start()
        with pytest.raises(RunFailed, match="was not accepted: 403"):
            until(posts.are_done, what="the posts to end")

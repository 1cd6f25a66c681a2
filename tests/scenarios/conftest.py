"""Every scenario happens in a world of its own."""

import pytest

from shared.engine.handle.raised import HandlerFailed
from shared.testkit.injected_faults import ProcessKilled
from tests.business import BusinessWorld


@pytest.fixture
def world() -> BusinessWorld:
    """Two healthy regions, nothing sent."""
    return BusinessWorld()


@pytest.fixture(autouse=True)
def a_death_passes_the_border(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that raises ProcessKilled has ended its worker, which nothing can catch."""
    make_of = HandlerFailed.__init__

    def make(self: HandlerFailed, error: BaseException) -> None:
        if isinstance(error, ProcessKilled):
            raise error
        make_of(self, error)

    monkeypatch.setattr(HandlerFailed, "__init__", make)

"""A sender that is stopped ends well, also before it has come to listen for the signal."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from local.testing.children import ChildFailed
from local.testing.patience import wait_until
from proof.chaos.options import ChaosOptions, RunFiles
from proof.chaos.processes import SenderProcess

NOWHERE: Any = SimpleNamespace(control=SimpleNamespace(url="http://127.0.0.1:9"), queue="lockstep")


@pytest.fixture
def sender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SenderProcess:
    monkeypatch.setattr("proof.chaos.processes.app_settings", lambda _: {})
    options = cast(ChaosOptions, SimpleNamespace(rate=1.0))
    return SenderProcess(NOWHERE, options, RunFiles(tmp_path))


def test_when_it_is_stopped_while_it_starts_nothing_has_begun_and_all_is_well(
    sender: SenderProcess,
) -> None:
    sender.stop()

    assert not sender.files.ledger.exists()


def test_one_that_failed_is_named_with_its_log(sender: SenderProcess) -> None:
    def has_ended() -> bool:
        return not sender.child.is_running

    wait_until(has_ended, seconds=60, what="its end")

    with pytest.raises(ChildFailed, match="LOCKSTEP_REGIONS"):
        sender.stop()

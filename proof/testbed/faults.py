"""Injected faults, each in force for the length of a `with` block.

Left by an error, a block repairs nothing: whoever breaks a run off stops the whole cloud, and a
repair in between could only hang on a cloud that is already gone.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from threading import Thread

from local.testing.control import ControlClient, ControlRefused

# A host may need several tries to come up while its journal is disturbed.
START_TRIES = 5


def start_host(control: ControlClient, region: str) -> None:
    """Start a host unless it runs; raises ControlRefused when it does not come up at all."""
    for _ in range(START_TRIES - 1):
        with suppress(ControlRefused):
            control.act(region, "start")
            return
    control.act(region, "start")


@contextmanager
def hosts_killed(control: ControlClient, *regions: str) -> Iterator[None]:
    for region in regions:
        control.act(region, "kill")
    yield
    for region in regions:
        start_host(control, region)


@contextmanager
def components_down(
    control: ControlClient, *components: str, action: str = "down"
) -> Iterator[None]:
    """Let nobody reach these components, such as `servicebus.east`: `down`, or `silent`."""
    faults = [control.arm({"component": name, "action": action}) for name in components]
    yield
    for fault in faults:
        control.clear(fault)


@contextmanager
def region_down(
    control: ControlClient,
    region: str,
    *more_components: str,
    away: str | None,
    wait: Callable[[], object],
    action: str = "down",
) -> Iterator[None]:
    """Lose all of a region: its host, its namespace, more of its components, and the journal there.

    `away` and `wait` are those of `journal_lost`; `action` is how all but the host is lost.
    """
    with (
        hosts_killed(control, region),
        components_down(control, f"servicebus.{region}", *more_components, action=action),
        journal_lost(control, region, away=away, wait=wait, action=action),
    ):
        yield


@contextmanager
def writes_moved(control: ControlClient, *, home: str, away: str) -> Iterator[None]:
    control.move_writes(away)
    yield
    control.move_writes(home)


@contextmanager
def journal_lost(
    control: ControlClient,
    region: str,
    *,
    away: str | None,
    wait: Callable[[], object],
    action: str = "down",
) -> Iterator[None]:
    """Lose the journal's region: it is `down`, or `silent`.

    `away` is None for a region that is only read. The writes of the other one fail during `wait`,
    after which they are moved there: here stands what Azure does by itself, within minutes.
    """
    fault = control.arm({"component": "cosmos", "action": action, "region": region})
    if away is not None:
        wait()
        control.move_writes(away)
    yield
    control.clear(fault)
    if away is not None:
        control.move_writes(region)


def run_in_background(work: Callable[[], None]) -> Future[None]:
    """Do work in a thread that does not keep the program from ending."""
    future: Future[None] = Future()

    def settle() -> None:
        try:
            work()
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    Thread(target=settle, daemon=True).start()
    return future

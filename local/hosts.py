"""The Functions hosts of all regions, started and stopped together."""

from collections.abc import Sequence
from typing import Any

from local.host_process import HostProcess, HostSpec


class Hosts:
    """One host process per region. Actions on one region do not touch the others."""

    def __init__(self, specs: Sequence[HostSpec]) -> None:
        self._processes = {spec.region: HostProcess(spec) for spec in specs}

    @property
    def urls(self) -> dict[str, str]:
        """Where each host answers HTTP; known once started."""
        return {region: process.url for region, process in self._processes.items()}

    def listing(self) -> dict[str, dict[str, Any]]:
        """State, url, process id and log file by region."""
        return {region: process.describe() for region, process in self._processes.items()}

    def start(self) -> None:
        """Start all side by side; when one fails all are killed and HostFailed is raised."""
        try:
            for process in self._processes.values():
                process.launch()
            for process in self._processes.values():
                process.await_ready()
        except BaseException:
            self.kill_all()
            raise

    def stop(self) -> None:
        """SIGTERM to all, then wait for all to drain."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.stop()

    def kill_all(self) -> None:
        """SIGKILL to all."""
        for process in self._processes.values():
            process.kill()

    def act(self, region: str, action: str) -> dict[str, Any]:
        """Kill, stop or start one host; returns its description when that is done.

        Raises KeyError for an unknown region, ValueError for an unknown action, HostFailed.
        """
        process = self._processes[region]
        match action:
            case "kill":
                process.kill()
            case "stop":
                process.stop()
            case "start":
                process.launch()
                process.await_ready()
            case _:
                raise ValueError(f"action must be kill, stop or start, not {action!r}")
        return process.describe()

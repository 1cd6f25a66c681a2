"""The regions of the account: all of them are read, one is written.

They share one store, so what was acknowledged is everywhere at once. An account of one region has
one endpoint. One of several has an endpoint per region and one of its own, which passes everything
on to the write region, wherever that is.
"""

from collections.abc import Sequence

from local.cosmos.responses import RequestRefused
from local.loopback import HOST

WRITE_FORBIDDEN = 3


class UnknownRegion(ValueError):
    """The account has no region of that name."""


class AccountRegions:
    """The names, the endpoints, and which region takes writes."""

    def __init__(self, names: Sequence[str], write: str | None = None) -> None:
        self.names = tuple(names)
        self.write = write if write in self.names else self.names[0]
        self._ports: dict[int, str] = {}

    def set_ports(self, ports: Sequence[int]) -> None:
        """Set the port of each region, in the order of the names."""
        self._ports = dict(zip(ports, self.names, strict=False))

    def find_by_port(self, port: int) -> str | None:
        """The region behind a port; None behind the account's own, when there are others."""
        return self._ports.get(port) if self._ports else self.write

    def move(self, name: str) -> None:
        """Let another region take the writes; raises UnknownRegion."""
        if name not in self.names:
            raise UnknownRegion(f"there is no region {name!r}, only {', '.join(self.names)}")
        self.write = name

    def check_write(self, region: str | None) -> None:
        """Raise the 403 of a write that came to a region which is only read."""
        if region not in (None, self.write):
            message = f"writes go to region {self.write}, not to {region}"
            raise RequestRefused(403, message, substatus=WRITE_FORBIDDEN)

    def list_locations(self, base_url: str) -> tuple[dict[str, str], list[dict[str, str]]]:
        """Where to write, and where to read, the write region first.

        `base_url` is how the client got here: the endpoint of an account of one region.
        """
        urls = {name: f"http://{HOST}:{port}/" for port, name in self._ports.items()}
        read = [
            {"name": name, "databaseAccountEndpoint": urls.get(name, base_url)}
            for name in sorted(self.names, key=lambda name: name != self.write)
        ]
        return read[0], read

"""Connections by identity, as far as an emulator can take part in them.

On the platform `NAME__fullyQualifiedNamespace` or `NAME__accountEndpoint` says where a service is,
and the host signs in with its own identity. An emulator knows no identities. An address that only
an emulator can have is connected to with the key that all emulators of the service share; which
identity was asked for (`__credential`, `__clientId`) makes no difference.
"""

import re

SERVICE_BUS_KEY = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE"
COSMOS_KEY = (  # published by the emulators, it protects nothing
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
)
HOST_AND_PORT = re.compile(r"[\w.-]+:\d+")
PLAIN_ENDPOINT = re.compile(r"http://[\w.-]+:\d+/?")


def service_bus(address: str) -> str | None:
    """A connection string for `host:port`; None for any other address, such as Azure's."""
    if not HOST_AND_PORT.fullmatch(address):
        return None
    return f"Endpoint=sb://{address};{SERVICE_BUS_KEY};UseDevelopmentEmulator=true"


def cosmos(endpoint: str) -> str | None:
    """A connection string for `http://host:port/`; None for any other endpoint, such as Azure's."""
    if not PLAIN_ENDPOINT.fullmatch(endpoint):
        return None
    return f"AccountEndpoint={endpoint};AccountKey={COSMOS_KEY};"


ADDRESSES = {"__fullyQualifiedNamespace": service_bus, "__accountEndpoint": cosmos}
"""How a connection string is made of the setting with this suffix."""

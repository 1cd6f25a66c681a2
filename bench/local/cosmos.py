"""Items of 1 KB in a container with azure-cosmos: creates, point reads and batches."""

from typing import Any

from azure.cosmos import ContainerProxy, CosmosClient

from bench.local.emulator import Emulator, containers
from bench.local.measure import Row, measured

TEXT = "x" * 900  # an item of about 1 KB with its ids
SESSION_ITEMS = 1000
CREATE, READ = "point write (create)", "point read"
BATCH = "batch of a read and a create"


def run(emulator: Emulator, total: int) -> list[Row]:
    """Create items, read each by id and key, then append as many in batches."""
    cosmos = emulator.contract["cosmos"]
    with CosmosClient(cosmos["endpoint"], cosmos["key"]) as client:
        database = client.get_database_client(cosmos["database"])
        container = database.get_container_client(containers(emulator.contract)[0])
        container.read()  # what the client asks for once
        rows = [Row(CREATE), Row(READ), Row(BATCH)]
        for row, operation in zip(rows, (create, read, append), strict=True):
            with measured(row, emulator, total):
                for number in range(total):
                    operation(container, number)
    return rows


def item(session: str, number: int) -> dict[str, Any]:
    """An item; some of its properties are indexed."""
    return {"id": f"{number:010}", "session": session, "owing": number % 2 == 0, "text": TEXT}


def session_of(number: int) -> str:
    """The partition an item is in."""
    return f"s{number // SESSION_ITEMS}"


def create(container: ContainerProxy, number: int) -> None:
    """Write one item."""
    container.create_item(item(session_of(number), number))


def read(container: ContainerProxy, number: int) -> None:
    """Read one item."""
    container.read_item(f"{number:010}", session_of(number))


def append(container: ContainerProxy, number: int) -> None:
    """Read the item before and create the next, both or neither."""
    session = session_of(number)
    fresh = item(session, number) | {"id": f"b{number:010}"}
    container.execute_item_batch(
        [("read", (f"{number:010}",)), ("create", (fresh,))], partition_key=session
    )

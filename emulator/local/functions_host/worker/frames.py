"""Objects between the host and its worker, over a socket that only these two have."""

import asyncio
import pickle
import struct
from typing import Any

LENGTH = struct.Struct("!I")


def write(writer: asyncio.StreamWriter, content: Any) -> None:
    """Send an object; who reads it has the same classes, as both are this checkout's code."""
    body = pickle.dumps(content, pickle.HIGHEST_PROTOCOL)
    writer.write(LENGTH.pack(len(body)) + body)


async def read(reader: asyncio.StreamReader) -> Any:
    """Return the next object, or None at the end of the stream."""
    try:
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        return pickle.loads(await reader.readexactly(length))  # noqa: S301 - our own process
    except (asyncio.IncompleteReadError, ConnectionError):
        return None

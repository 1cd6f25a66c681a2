"""Self-links: addresses by resource ids, which clients use for an item they are handed whole.

`dbs/AAAAAQ==/colls/AAAAAQAAAAE=/docs/AAAAAQAAAAEBAAAAAAAAAA==` names a database, a container and an
item by numbers they were given at birth. What is signed of such an address is the last of its ids,
in lower case.
"""

import base64
import binascii
from dataclasses import replace

from local.cosmos.addresses import Address
from local.cosmos.answers import Refusal
from local.cosmos.catalogue import Catalogue

DATABASE_BYTES, CONTAINER_BYTES = 4, 8


def by_name(address: Address, catalogue: Catalogue) -> Address:
    """The address with the names of its database and container; one by names is returned as it is.

    An item stays without its name, but for its number `birth`. A 404 Refusal when there is no such
    database or container.
    """
    database_bytes = raw_id(address.database)
    if len(database_bytes) != DATABASE_BYTES:
        return address
    last = address.item or address.container or address.database
    named = replace(address, database=database_name(address.database, catalogue))
    if address.container:
        named = replace(named, container=container_name(named, catalogue))
    birth = raw_id(address.item)[CONTAINER_BYTES:]
    return replace(
        named,
        item="",
        birth=int.from_bytes(birth, "little") if birth else None,
        link=last.lower(),
    )


def database_name(rid: str, catalogue: Catalogue) -> str:
    """The name of the database with a resource id."""
    for database in catalogue.databases():
        if database.rid == rid:
            return database.name
    raise Refusal(404, f"there is no database with the resource id {rid!r}")


def container_name(address: Address, catalogue: Catalogue) -> str:
    """The name of the container with a resource id in a database by name."""
    for container in catalogue.containers(catalogue.database(address.database)):
        if container.rid == address.container:
            return container.name
    message = f"there is no container with the resource id {address.container!r}"
    raise Refusal(404, message, substatus=1003)


def raw_id(text: str) -> bytes:
    """The bytes of a resource id, none of a text that is no such id."""
    try:
        return base64.b64decode(text, altchars=b"+-", validate=True)
    except (binascii.Error, ValueError):
        return b""

"""The value of a `durableClient` binding: where the task hub and the management endpoints are."""

import json
from urllib.parse import urlencode

from local.functions_host.protos import TypedData

WEBHOOKS = "/runtime/webhooks/durabletask"
EXTENSION = "durabletask_extension"  # whose key opens the management endpoints
CONNECTION = "Storage"
LARGEST_MESSAGE_BYTES = 2**31 - 1


def client_input(backend_address: str, hub_name: str, host_url: str, key: str) -> TypedData:
    """Build what azure-functions-durable 2 makes its client of; `key` is for the endpoints."""
    query = {"taskHub": hub_name, "connection": CONNECTION, "code": key}
    base_url = f"{host_url}{WEBHOOKS}"
    document = {
        "taskHubName": hub_name,
        "connectionName": CONNECTION,
        "creationUrls": {},
        "managementUrls": {},
        "baseUrl": base_url,
        "httpBaseUrl": base_url,
        "rpcBaseUrl": f"http://{backend_address}",
        "requiredQueryStringParameters": urlencode(query),
        "maxGrpcMessageSizeInBytes": LARGEST_MESSAGE_BYTES,
        "useForwardedHost": False,
    }
    return TypedData(string=json.dumps(document))

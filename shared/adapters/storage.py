"""The storage account of the Functions host, as far as it is known whether it answers.

A region depends on it as on its Service Bus: one that refuses ends the region's host, and one that
is silent holds whatever starts or asks a saga, while messages go on and health would say nothing.
"""

from typing import Any

from azure.core import AsyncPipelineClient
from azure.core.exceptions import AzureError
from azure.core.pipeline.policies import AsyncBearerTokenCredentialPolicy
from azure.core.rest import HttpRequest
from azure.identity.aio import DefaultAzureCredential

from shared.domain.errors import Unavailable

SCOPE = "https://storage.azure.com/.default"
# The first version that takes tokens of Entra ID for what is asked here is older by years.
VERSION = "2023-11-03"


class StorageAccount:
    """Asks the blob service for its first container, by the app's identity."""

    def __init__(self, endpoint: str, client_id: str | None, **options: Any) -> None:
        self.endpoint = endpoint
        self.client_id = client_id
        self.options = options
        self.client: AsyncPipelineClient[Any, Any] | None = None

    async def look(self) -> None:
        """Raise Unavailable where the account refuses or cannot be reached, with its reason.

        It waits for one that is silent; the deadline is the caller's.
        """
        if self.client is None:
            credential = DefaultAzureCredential(managed_identity_client_id=self.client_id)
            # Nothing is tried again here: whoever looks does so again soon.
            policies = [AsyncBearerTokenCredentialPolicy(credential, SCOPE)]
            self.client = AsyncPipelineClient(self.endpoint, policies=policies, **self.options)
        request = HttpRequest(
            "GET",
            self.endpoint,
            params={"comp": "list", "maxresults": "1"},
            headers={"x-ms-version": VERSION},
        )
        try:
            answer = await self.client.send_request(request)
        except AzureError as error:
            raise Unavailable(f"it cannot be reached: {error.message}") from error
        if answer.status_code != 200:
            code = answer.headers.get("x-ms-error-code", "")
            raise Unavailable(f"it refuses: {answer.status_code} {code}".rstrip())

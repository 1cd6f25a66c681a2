"""Where a Service Bus namespace is, read from its connection string."""

import base64
import hashlib
import hmac
import time
from dataclasses import dataclass
from urllib.parse import quote_plus, urlsplit

AMQP_PORT = 5672
TOKEN_LIFETIME_SECONDS = 30 * 24 * 3600  # a token is put once per connection and not renewed


@dataclass(frozen=True, slots=True)
class NamespaceAddress:
    """A namespace on this machine and the key to it."""

    host: str
    port: int
    key_name: str
    key: str

    @classmethod
    def parse(cls, connection_string: str) -> "NamespaceAddress":
        """Read a connection string; one that needs TLS or names no key raises ValueError."""
        pairs = (part.partition("=") for part in connection_string.split(";") if part)
        fields = {name.strip().lower(): value for name, _, value in pairs}
        if fields.get("usedevelopmentemulator", "").lower() != "true":
            raise ValueError(
                "only connection strings with UseDevelopmentEmulator=true are honoured"
            )
        endpoint = urlsplit(fields.get("endpoint", ""))
        if not endpoint.hostname or not fields.get("sharedaccesskeyname"):
            raise ValueError("a connection string needs Endpoint and SharedAccessKeyName")
        key = fields.get("sharedaccesskey", "")
        port = endpoint.port or AMQP_PORT
        return cls(endpoint.hostname, port, fields["sharedaccesskeyname"], key)

    def audience(self, entity: str) -> str:
        """The resource a token for the entity speaks of."""
        return f"amqp://{self.host}:{self.port}/{entity}"

    def token(self, entity: str) -> str:
        """Sign a shared access token for one entity."""
        resource = quote_plus(self.audience(entity))
        expiry = int(time.time()) + TOKEN_LIFETIME_SECONDS
        digest = hmac.digest(self.key.encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256)
        signature = quote_plus(base64.b64encode(digest))
        return (
            f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={self.key_name}"
        )

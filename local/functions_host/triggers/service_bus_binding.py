"""What a Service Bus trigger binding says, read whole or refused."""

from dataclasses import dataclass

from local.functions_host.amqp.address import NamespaceAddress
from local.functions_host.function import Binding
from local.functions_host.settings import AppSettings

HONOURED = (
    "connection",
    "queueName",
    "topicName",
    "subscriptionName",
    "isSessionsEnabled",
    "cardinality",
    "accessRights",
    "autoCompleteMessages",
)


@dataclass(frozen=True, slots=True)
class ServiceBusBinding:
    """Where messages come from and in which form the function takes them."""

    address: NamespaceAddress
    entity: str
    has_sessions: bool
    is_batch: bool
    is_binary: bool


def read_binding(binding: Binding, settings: AppSettings) -> ServiceBusBinding:
    """Read the binding; what is not honoured is Refused."""
    binding.only(*HONOURED)
    if not binding.flag("autoCompleteMessages", True):
        raise binding.refused("autoCompleteMessages false is not honoured")
    return ServiceBusBinding(
        address_of(binding, settings),
        entity_of(binding),
        binding.flag("isSessionsEnabled", False),
        binding.word("cardinality", "ONE", "MANY") == "MANY",
        binding.word("dataType", "STRING", "BINARY", "UNDEFINED") == "BINARY",
    )


def entity_of(binding: Binding) -> str:
    """The queue, or the subscription in the form in which it is received from."""
    if "topicName" in binding.properties:
        return f"{binding.text('topicName')}/Subscriptions/{binding.text('subscriptionName')}"
    return binding.text("queueName")


def address_of(binding: Binding, settings: AppSettings) -> NamespaceAddress:
    """Read the namespace's address from the setting the binding names."""
    name = binding.text("connection")
    try:
        return NamespaceAddress.parse(settings.connection(name, binding.function))
    except ValueError as error:
        raise binding.refused(f"setting {name}: {error}") from error

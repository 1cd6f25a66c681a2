"""Functions and their bindings, as the worker indexed them, with settings put in."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from local.functions_host.protos import RpcFunctionMetadata
from local.functions_host.refusal import Refused
from local.functions_host.retry import RetryPolicy
from local.functions_host.settings import AppSettings

BESIDE_A_TRIGGER = {("durableClient", "IN"), ("http", "OUT")}
RETRIED = {"cosmosDBTrigger", "timerTrigger"}
COMMON_KEYS = {"type", "name", "direction", "dataType"}


@dataclass(frozen=True, slots=True)
class Binding:
    """One binding of a function; placeholders in its properties are already resolved."""

    function: str
    type: str
    name: str
    direction: str
    properties: Mapping[str, Any]

    def only(self, *honoured: str) -> None:
        """Refuse properties other than these and the ones every binding has."""
        unknown = sorted(self.properties.keys() - COMMON_KEYS - set(honoured))
        if unknown:
            raise self.refused(f"not honoured: {', '.join(unknown)}")

    def text(self, key: str, default: str | None = None) -> str:
        """Read a string; without a default a missing one is Refused."""
        value = self.properties.get(key, default)
        if not isinstance(value, str):
            raise self.refused(f"{key} must be a string")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Read a boolean; `true` and `false` in any case count, as in the real host."""
        value = self.properties.get(key, default)
        if str(value).lower() not in ("true", "false"):
            raise self.refused(f"{key} must be true or false")
        return str(value).lower() == "true"

    def number(self, key: str, default: int) -> int:
        """Read a whole number."""
        value = self.properties.get(key, default)
        try:
            return int(value)
        except (TypeError, ValueError) as error:
            raise self.refused(f"{key} must be a whole number") from error

    def word(self, key: str, *choices: str) -> str:
        """Read one of some words, in any case; the first is the default."""
        word = self.text(key, choices[0]).upper()
        if word not in choices:
            raise self.refused(f"{key} must be one of {', '.join(choices).lower()}")
        return word

    def refused(self, why: str) -> Refused:
        """Make the error that names function and binding."""
        return Refused(f"function {self.function}: {self.type}: {why}")


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """One function of the app: what triggers it and what else it binds. Compared by identity."""

    name: str
    id: str
    trigger: Binding
    others: tuple[Binding, ...]
    retry: RetryPolicy | None = None
    is_disabled: bool = False


def read_function(
    metadata: RpcFunctionMetadata, settings: AppSettings, trigger_types: Collection[str]
) -> Function:
    """Read what the worker found; a function without a trigger honoured here is Refused."""
    bindings = [read_binding(metadata.name, raw, settings) for raw in metadata.raw_bindings]
    triggers = [binding for binding in bindings if binding.type in trigger_types]
    others = tuple(binding for binding in bindings if binding.type not in trigger_types)
    for binding in others:
        if (binding.type, binding.direction) not in BESIDE_A_TRIGGER:
            raise binding.refused("this binding type is not honoured")
    if len(triggers) != 1:
        raise Refused(f"function {metadata.name}: exactly one trigger is needed")
    retry = retry_policy(metadata, triggers[0])
    is_disabled = settings.disables(metadata.name)
    return Function(metadata.name, metadata.function_id, triggers[0], others, retry, is_disabled)


def retry_policy(metadata: RpcFunctionMetadata, trigger: Binding) -> RetryPolicy | None:
    """Read the retry policy, if there is one; the real host ignores it on other triggers."""
    if metadata.retry_options is None:
        return None
    if trigger.type not in RETRIED:
        raise trigger.refused("a retry policy is not honoured")
    try:
        return RetryPolicy.read(metadata.retry_options)
    except ValueError as error:
        raise trigger.refused(str(error)) from error


def read_binding(function: str, raw: str, settings: AppSettings) -> Binding:
    """Parse one binding and put app settings in place of `%NAME%`."""
    document = json.loads(raw)
    resolved = {
        key: settings.resolve(value, function) if isinstance(value, str) else value
        for key, value in document.items()
    }
    return Binding(
        function, resolved["type"], resolved["name"], resolved.get("direction", "IN"), resolved
    )

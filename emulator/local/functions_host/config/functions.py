"""Functions with their bindings and retry policies, as indexed by the worker."""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from local.functions_host.config.settings import AppSettings, Unsupported
from local.functions_host.protos import RpcFunctionMetadata

BESIDE_A_TRIGGER = {("durableClient", "IN"), ("http", "OUT")}
RETRIED = {"cosmosDBTrigger", "timerTrigger"}
COMMON_KEYS = {"type", "name", "direction", "dataType"}
FOR_EVER = -1


@dataclass(frozen=True, slots=True)
class Binding:
    """One binding of a function; placeholders in its properties are already resolved."""

    function: str
    type: str
    name: str
    direction: str
    properties: Mapping[str, Any]

    def only(self, *supported: str) -> None:
        """Refuse properties other than these and the ones every binding has."""
        unknown = sorted(self.properties.keys() - COMMON_KEYS - set(supported))
        if unknown:
            raise self.unsupported(f"not honoured: {', '.join(unknown)}")

    def text(self, key: str, default: str | None = None) -> str:
        """Read a string; one that is missing and has no default raises Unsupported."""
        value = self.properties.get(key, default)
        if not isinstance(value, str):
            raise self.unsupported(f"{key} must be a string")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Read a boolean; `true` and `false` in any case count, as in the real host."""
        value = str(self.properties.get(key, default)).lower()
        if value not in ("true", "false"):
            raise self.unsupported(f"{key} must be true or false")
        return value == "true"

    def number(self, key: str, default: int) -> int:
        try:
            return int(self.properties.get(key, default))
        except (TypeError, ValueError) as error:
            raise self.unsupported(f"{key} must be a whole number") from error

    def word(self, key: str, *choices: str) -> str:
        """Read one of some words, in any case; the first is the default."""
        word = self.text(key, choices[0]).upper()
        if word not in choices:
            raise self.unsupported(f"{key} must be one of {', '.join(choices).lower()}")
        return word

    def unsupported(self, reason: str) -> Unsupported:
        return Unsupported(f"function {self.function}: {self.type}: {reason}")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Up to `max_count` more runs after a failed one (infinity: for ever), pauses in seconds.

    The n-th pause is `first` times `factor` to the n, and never above `longest`.
    """

    max_count: float
    first: float
    longest: float
    factor: float

    @classmethod
    def read(cls, options: Any) -> "RetryPolicy":
        """Read the worker's options; a strategy of another name raises ValueError.

        The real host adds a random part to its exponential pauses; these double exactly.
        """
        count = options.max_retry_count
        max_count = math.inf if count == FOR_EVER else float(count)
        match options.retry_strategy:
            case "fixed_delay":
                delay = options.delay_interval.total_seconds()
                return cls(max_count, delay, delay, 1.0)
            case "exponential_backoff":
                least = options.minimum_interval.total_seconds()
                return cls(max_count, least, options.maximum_interval.total_seconds(), 2.0)
            case other:
                raise ValueError(f"the retry strategy {other!r} is not honoured")

    def pause(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row, at least one."""
        exponent = min(failures - 1, 1000)  # a float overflows beyond
        return float(min(self.first * self.factor**exponent, self.longest))

    @property
    def wire_max_count(self) -> int:
        """The most retries, in the form the function's context has: -1 for ever."""
        return FOR_EVER if math.isinf(self.max_count) else int(self.max_count)


@dataclass(frozen=True, slots=True, eq=False)
class AppFunction:
    """One function of the app: what triggers it and what else it binds. Compared by identity."""

    name: str
    id: str
    trigger: Binding
    others: tuple[Binding, ...]
    retry: RetryPolicy | None = None
    is_disabled: bool = False


def read_function(
    metadata: RpcFunctionMetadata, settings: AppSettings, trigger_types: Collection[str]
) -> AppFunction:
    """Read what the worker found; a function without one trigger of these types is Unsupported."""
    bindings = [read_binding(metadata.name, raw, settings) for raw in metadata.raw_bindings]
    triggers = [binding for binding in bindings if binding.type in trigger_types]
    others = tuple(binding for binding in bindings if binding.type not in trigger_types)
    for binding in others:
        if (binding.type, binding.direction) not in BESIDE_A_TRIGGER:
            raise binding.unsupported("this binding type is not honoured")
    if len(triggers) != 1:
        raise Unsupported(f"function {metadata.name}: exactly one trigger is needed")
    name, trigger, is_disabled = metadata.name, triggers[0], settings.disables(metadata.name)
    retry = read_retry_policy(metadata, trigger)
    return AppFunction(name, metadata.function_id, trigger, others, retry, is_disabled)


def read_binding(function: str, raw: str, settings: AppSettings) -> Binding:
    resolved = {
        key: settings.resolve(value, function) if isinstance(value, str) else value
        for key, value in json.loads(raw).items()
    }
    kind, name, direction = resolved["type"], resolved["name"], resolved.get("direction", "IN")
    return Binding(function, kind, name, direction, resolved)


def read_retry_policy(metadata: RpcFunctionMetadata, trigger: Binding) -> RetryPolicy | None:
    """Read the retry policy, if there is one.

    The real host ignores it in silence on triggers that are not RETRIED; here it is refused.
    """
    if metadata.retry_options is None:
        return None
    if trigger.type not in RETRIED:
        raise trigger.unsupported("a retry policy is not honoured")
    try:
        return RetryPolicy.read(metadata.retry_options)
    except ValueError as error:
        raise trigger.unsupported(str(error)) from error

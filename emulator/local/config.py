"""`local.config.json`: the namespaces, the Cosmos account and the hosts of the local cloud."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.cosmos.config import CosmosConfig, InvalidCosmosConfig
from local.servicebus.config import InvalidConfig, NamespaceConfig, parse_namespaces

PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
SECTIONS = ("UserConfig", "Cosmos", "Hosts")


class InvalidLocalConfig(ValueError):
    """The file cannot be read, or a key in it cannot be honoured; the message names the key."""


@dataclass(frozen=True, slots=True)
class HostsConfig:
    """One Functions host per region; `values` are app settings that may hold placeholders."""

    regions: tuple[str, ...]
    values: Mapping[str, str]

    @property
    def hubs(self) -> tuple[str, ...]:
        """The regions whose task hub is asked for: by `{durable}` all, by `{durable.NAME}` one."""
        asked = {name for value in self.values.values() for name in PLACEHOLDER.findall(value)}
        return tuple(name for name in self.regions if {"durable", f"durable.{name}"} & asked)


@dataclass(frozen=True, slots=True)
class LocalConfig:
    namespaces: tuple[NamespaceConfig, ...]
    cosmos: CosmosConfig
    hosts: HostsConfig

    @property
    def session_queue(self) -> str:
        """The first queue with sessions: where the app listens."""
        queues = [queue for namespace in self.namespaces for queue in namespace.queues]
        return next((queue.name for queue in queues if queue.requires_session), "")


def load_config(path: Path) -> LocalConfig:
    """Read and check the file; raises InvalidLocalConfig."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidLocalConfig(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidLocalConfig(f"{path}: not JSON: {error}") from error
    try:
        return parse_config(document)
    except (InvalidConfig, InvalidCosmosConfig, InvalidLocalConfig) as error:
        raise InvalidLocalConfig(f"{path}: {error}") from error


def parse_config(document: Any) -> LocalConfig:
    """Check a parsed file; every section but Hosts is required."""
    if not isinstance(document, dict):
        raise InvalidLocalConfig("the file must hold an object")
    for key in document:
        if key not in SECTIONS:
            raise InvalidLocalConfig(f"{key} is not a known key")
    for key in ("UserConfig", "Cosmos"):
        if not isinstance(document.get(key), dict):
            raise InvalidLocalConfig(f"{key} must be an object")
    config = LocalConfig(
        parse_namespaces(document["UserConfig"]),
        CosmosConfig.parse(document["Cosmos"]),
        parse_hosts(document.get("Hosts", {})),
    )
    # A placeholder that nothing takes is refused here, not when the hosts start.
    names = ["region", "cosmos", "durable"]
    names += [f"servicebus.{namespace.name}" for namespace in config.namespaces]
    names += [f"durable.{region}" for region in config.hosts.regions]
    fill_placeholders(config.hosts.values, dict.fromkeys(names, ""))
    return config


def parse_hosts(section: Any) -> HostsConfig:
    if not isinstance(section, dict):
        raise InvalidLocalConfig("Hosts must be an object")
    for key in section:
        if key not in ("Regions", "Values"):
            raise InvalidLocalConfig(f"Hosts.{key} is not a known key")
    regions, values = section.get("Regions", []), section.get("Values", {})
    if not isinstance(regions, list) or not all(isinstance(name, str) for name in regions):
        raise InvalidLocalConfig("Hosts.Regions must be a list of names")
    if not all(regions) or len(set(regions)) < len(regions):
        raise InvalidLocalConfig("Hosts.Regions must have names that differ")
    if not isinstance(values, dict):
        raise InvalidLocalConfig("Hosts.Values must be an object")
    for key, value in values.items():
        if not isinstance(value, str):
            raise InvalidLocalConfig(f"Hosts.Values.{key} must be a string")
    return HostsConfig(tuple(regions), values)


def fill_placeholders(values: Mapping[str, str], addresses: Mapping[str, str]) -> dict[str, str]:
    """App settings with `{name}` replaced; an unknown name raises InvalidLocalConfig."""
    for key, text in values.items():
        for name in PLACEHOLDER.findall(text):
            if name not in addresses:
                message = f"Hosts.Values.{key}: {{{name}}} is not a known placeholder"
                raise InvalidLocalConfig(message)
    return {key: PLACEHOLDER.sub(lambda m: addresses[m[1]], text) for key, text in values.items()}

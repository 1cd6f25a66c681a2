"""App settings: the environment, and below it the `Values` of `local.settings.json`."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

DISABLED = ("AzureWebJobs.{function}.Disabled", "AzureWebJobs_{function}_Disabled")
INVOCATION_COST = "LOCAL_HOST_INVOCATION_MS"
TARGET_GROUP = "FUNCTIONS_TARGET_GROUP"
PLACEHOLDER = re.compile(r"%([^%]+)%")
DECIMAL = re.compile(r"\d{1,6}(?:\.\d{1,6})?", re.ASCII)

SERVICE_BUS_KEY = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE"
COSMOS_KEY = (  # published by the emulators, it protects nothing
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
)

# Connections by identity: on the platform `NAME__fullyQualifiedNamespace` or
# `NAME__accountEndpoint` says where a service is, and the host signs in with its own identity. An
# emulator knows no identities, so an address that only an emulator can have is connected to with
# the key that all emulators of the service share, whichever identity (`__credential`,
# `__clientId`) was asked for.
# By suffix: the pattern of an emulator's address, and the connection string it stands for.
EMULATOR_ADDRESSES = {
    "__fullyQualifiedNamespace": (
        re.compile(r"[\w.-]+:\d+"),
        f"Endpoint=sb://{{}};{SERVICE_BUS_KEY};UseDevelopmentEmulator=true",
    ),
    "__accountEndpoint": (
        re.compile(r"http://[\w.-]+:\d+/?"),
        f"AccountEndpoint={{}};AccountKey={COSMOS_KEY};",
    ),
}


class Unsupported(Exception):
    """The app or its configuration asks for something this host does not honour."""


@dataclass(frozen=True, slots=True)
class AppSettings:
    values: Mapping[str, str]

    @classmethod
    def load(cls, app_directory: Path, environment: Mapping[str, str]) -> "AppSettings":
        """Join the file's values and the environment, which wins where both have a value."""
        return cls({**read_local_values(app_directory / "local.settings.json"), **environment})

    def resolve(self, text: str, function: str) -> str:
        """Replace each `%NAME%` by that setting; a missing one is Unsupported."""
        return PLACEHOLDER.sub(lambda match: self._required(match[1], function), text)

    def connection(self, name: str, function: str) -> str:
        """The connection string a binding's `connection` names.

        A connection by identity to anything but an emulator is Unsupported: there is no identity
        on one machine.
        """
        if name in self.values:
            return self.values[name]
        for suffix, (pattern, connection_string) in EMULATOR_ADDRESSES.items():
            address = self.values.get(name + suffix)
            if address is not None:
                if not pattern.fullmatch(address):
                    self._refuse_identity(name + suffix, name, function)
                return connection_string.format(address)
        if f"{name}__credential" in self.values:
            self._refuse_identity(f"{name}__credential", name, function)
        return self._required(name, function)

    def invocation_seconds(self) -> float:
        """Return the seconds that each invocation costs the host, in turn; raises Unsupported.

        The real host is a process of its own beside the worker, and heavier than this one.
        """
        text = self.values.get(INVOCATION_COST) or "0"
        if not DECIMAL.fullmatch(text):
            raise Unsupported(
                f"the app setting {INVOCATION_COST} must be milliseconds, not {text!r}"
            )
        return float(text) / 1000

    def excludes(self, group: str) -> bool:
        """Return whether this host is to leave a group of functions to hosts of their own."""
        target = self.values.get(TARGET_GROUP, "").lower()
        return bool(target) and target != group.lower()

    def disables(self, function: str) -> bool:
        """Return whether a function is switched off, by the setting the platform has for that."""
        names = (name.format(function=function) for name in DISABLED)
        return any(self.values.get(name, "").lower() in ("true", "1") for name in names)

    def _refuse_identity(self, setting: str, name: str, function: str) -> NoReturn:
        raise Unsupported(
            f"function {function}: {setting} asks for a connection by identity, which is honoured "
            f"for an emulator's host:port only; set that, or {name} to a connection string"
        )

    def _required(self, name: str, function: str) -> str:
        if name not in self.values:
            raise Unsupported(f"function {function}: the app setting {name} is missing")
        return self.values[name]


def read_local_values(path: Path) -> dict[str, str]:
    """Read the `Values` of a local settings file; no file means no values.

    What else such files can hold is meant for other tools than the host, and Unsupported.
    """
    if not path.exists():
        return {}
    try:
        document = dict(json.loads(path.read_text("utf-8-sig")))
        values = dict(document.pop("Values", {}))
    except (ValueError, TypeError) as error:
        raise Unsupported(f"{path}: not a local settings file: {error}") from error
    if document.pop("IsEncrypted", False) is not False:
        raise Unsupported(f"{path}: IsEncrypted is honoured as false only")
    if document:
        raise Unsupported(f"{path}: not honoured: {', '.join(sorted(document))}")
    wrong = [name for name, value in values.items() if not isinstance(value, str)]
    if wrong:
        raise Unsupported(f"{path}: Values must be strings, not so: {', '.join(wrong)}")
    return values

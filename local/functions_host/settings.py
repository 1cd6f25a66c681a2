"""App settings: the environment, and below it the `Values` of `local.settings.json`."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from local.functions_host import identity
from local.functions_host.refusal import Refused

DISABLED = ("AzureWebJobs.{function}.Disabled", "AzureWebJobs_{function}_Disabled")
PLACEHOLDER = re.compile(r"%([^%]+)%")


@dataclass(frozen=True, slots=True)
class AppSettings:
    """The settings an app can name, each a string."""

    values: Mapping[str, str]

    @classmethod
    def load(cls, app_directory: Path, environment: Mapping[str, str]) -> "AppSettings":
        """Join the file's values and the environment; where both speak, the environment wins."""
        return cls({**local_values(app_directory / "local.settings.json"), **environment})

    def resolve(self, text: str, function: str) -> str:
        """Replace each `%NAME%` by that setting; a missing one is Refused by name."""
        return PLACEHOLDER.sub(lambda match: self._named(match[1], function), text)

    def connection(self, name: str, function: str) -> str:
        """The connection string a binding's `connection` names.

        Connections by identity (`NAME__fullyQualifiedNamespace` and the like) are made for the
        address of an emulator, and Refused for any other: there is no identity on one machine.
        """
        if name in self.values:
            return self.values[name]
        for suffix, made_of in identity.ADDRESSES.items():
            address = self.values.get(name + suffix)
            if address is not None:
                return made_of(address) or self._refuse_identity(name + suffix, name, function)
        if f"{name}__credential" in self.values:
            self._refuse_identity(f"{name}__credential", name, function)
        return self._named(name, function)

    def disables(self, function: str) -> bool:
        """Whether a function is switched off, by the setting the platform has for that."""
        names = (name.format(function=function) for name in DISABLED)
        return any(self.values.get(name, "").lower() in ("true", "1") for name in names)

    def _refuse_identity(self, setting: str, name: str, function: str) -> NoReturn:
        raise Refused(
            f"function {function}: {setting} asks for a connection by identity, which is honoured "
            f"for an emulator's host:port only; set that, or {name} to a connection string"
        )

    def _named(self, name: str, function: str) -> str:
        if name not in self.values:
            raise Refused(f"function {function}: the app setting {name} is missing")
        return self.values[name]


def local_values(path: Path) -> dict[str, str]:
    """Read the `Values` of a local settings file; no file means no values.

    What else such files can hold is for other tools than the host, and Refused by name.
    """
    if not path.exists():
        return {}
    try:
        document = dict(json.loads(path.read_text("utf-8-sig")))
        values = dict(document.pop("Values", {}))
    except (ValueError, TypeError) as error:
        raise Refused(f"{path}: not a local settings file: {error}") from error
    if document.pop("IsEncrypted", False) is not False:
        raise Refused(f"{path}: IsEncrypted is honoured as false only")
    if document:
        raise Refused(f"{path}: not honoured: {', '.join(sorted(document))}")
    wrong = [name for name, value in values.items() if not isinstance(value, str)]
    if wrong:
        raise Refused(f"{path}: Values must be strings, not so: {', '.join(wrong)}")
    return values

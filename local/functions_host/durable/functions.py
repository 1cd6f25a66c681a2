"""The Durable functions of an app, by kind and by the name their work items carry."""

from dataclasses import dataclass, field
from enum import Enum

from local.functions_host.function import Function


class Kind(Enum):
    """What a Durable function is."""

    ORCHESTRATION = "orchestration"
    ACTIVITY = "activity"
    ENTITY = "entity"


@dataclass(slots=True)
class DurableFunctions:
    """Names are told apart by case, but for entities, whose ids are always in lower case."""

    _found: dict[tuple[Kind, str], Function] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, kind: Kind, name: str, function: Function) -> None:
        """Add one function; the same name twice is Refused."""
        key = (kind, name.lower() if kind is Kind.ENTITY else name)
        if key in self._found:
            raise function.trigger.refused(f"{name} is there already")
        self._found[key] = function

    def find(self, kind: Kind, name: str) -> Function:
        """The function of a name; KeyError if the app has none."""
        return self._found[kind, name]

    def names(self, kind: Kind) -> list[str]:
        """All names of a kind."""
        return [name for found, name in self._found if found is kind]

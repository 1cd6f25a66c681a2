"""The kinds of Durable's functions, and how a work item finds its own."""

from enum import Enum

from local.functions_host.config.functions import AppFunction


class DurableKind(Enum):
    ORCHESTRATION = "orchestration"
    ACTIVITY = "activity"
    ENTITY = "entity"


# By kind and the name work items carry. Case counts, but for entities: there it is always lower.
type FunctionsByName = dict[tuple[DurableKind, str], AppFunction]

"""Targets: what there is to hit, so that a fault that never could is refused when it is armed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from local.faults import Action, Fault, InvalidFault


@dataclass(frozen=True, slots=True)
class Target:
    """One component: its operations, each with the actions that can hit it, and its regions.

    An operation without actions is only counted. A component without regions serves in one place.
    """

    component: str
    operations: Mapping[str, frozenset[Action]]
    regions: frozenset[str] = frozenset()


def check_aim(fault: Fault, targets: Iterable[Target]) -> None:
    """Raise InvalidFault, naming what is wrong, unless there is something the fault can hit."""
    known = list(targets)
    found = [target for target in known if fault.covers(target.component, fault.region)]
    if not found:
        names = listed(whole_names(known))
        raise InvalidFault(f"there is no component {fault.component!r}, only *, {names}")
    actions = actions_on(fault, in_region(fault, found))
    if fault.action not in actions:
        others = f"only {listed(actions)}" if actions else "which is only counted"
        raise InvalidFault(
            f"{fault.action} never hits {fault.operation} of {fault.component}, {others}"
        )


def in_region(fault: Fault, found: list[Target]) -> list[Target]:
    """Those that serve in the fault's region, all if it names none; InvalidFault if none does."""
    if fault.region is None:
        return found
    regions = {region for target in found for region in target.regions}
    if fault.region not in regions:
        others = f"only {listed(regions)}" if regions else "which is not served by region"
        raise InvalidFault(f"there is no region {fault.region!r} in {fault.component}, {others}")
    return [target for target in found if fault.region in target.regions]


def actions_on(fault: Fault, found: list[Target]) -> set[Action]:
    """Whatever can hit what the fault names."""
    operations = {name for target in found for name in target.operations}
    if fault.operation not in operations | {"*"}:
        raise InvalidFault(
            f"{fault.component} has no operation {fault.operation!r}, only {listed(operations)}"
        )
    return {
        action
        for target in found
        for name, actions in target.operations.items()
        if fault.operation in ("*", name)
        for action in actions
    }


def whole_names(targets: Iterable[Target]) -> set[str]:
    """The names of components, and of what they are parts of."""
    names = {target.component for target in targets}
    return names | {name.partition(".")[0] for name in names}


def listed(names: Iterable[str]) -> str:
    """Names in order, for a sentence."""
    return ", ".join(sorted(names))

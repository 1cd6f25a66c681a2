"""What injected faults can hit: a fault that hits nothing is refused when it is armed."""

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
    every = list(targets)
    component, region = fault.component, fault.region
    aimed = [target for target in every if fault.covers(target.component, region)]
    if not aimed:
        names = {target.component for target in every}
        names |= {name.partition(".")[0] for name in names}  # and what they are parts of
        raise InvalidFault(f"there is no component {component!r}, only *, {joined(names)}")
    if region is not None:
        regions = {name for target in aimed for name in target.regions}
        if region not in regions:
            others = f"only {joined(regions)}" if regions else "which is not served by region"
            raise InvalidFault(f"there is no region {region!r} in {component}, {others}")
        aimed = [target for target in aimed if region in target.regions]
    operations = {name for target in aimed for name in target.operations}
    if fault.operation not in operations | {"*"}:
        raise InvalidFault(
            f"{component} has no operation {fault.operation!r}, only {joined(operations)}"
        )
    actions = {
        action
        for target in aimed
        for name, actions in target.operations.items()
        if fault.operation in ("*", name)
        for action in actions
    }
    if fault.action not in actions:
        others = f"only {joined(actions)}" if actions else "which is only counted"
        raise InvalidFault(f"{fault.action} never hits {fault.operation} of {component}, {others}")


def joined(names: Iterable[str]) -> str:
    """Names in order, for a sentence."""
    return ", ".join(sorted(names))

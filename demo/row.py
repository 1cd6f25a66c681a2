"""What a verdict is made of."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a verdict; `is_good` is None for a line that only informs."""

    label: str
    value: str
    is_good: bool | None = None

"""What a mutant is: one small change to our own code that a named test must notice."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change, the promise it breaks, and the test file that must notice."""

    name: str
    promise: str
    file: str
    before: str
    after: str
    killer: str

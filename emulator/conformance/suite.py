"""The live test suite of an SDK, and which of its tests say something about the emulator."""

import tomllib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path

UNMARKED = "bears no mark of a live test: it tries the SDK alone"


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """Tests that say nothing about the emulator, and why.

    They fit one of the patterns `tests` (`folder/file.py::Class::test[parameters]`), or have one of
    `marks` and none of the suite's own.
    """

    reason: str
    tests: tuple[str, ...]
    marks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Suite:
    """The live tests in the source distribution of an SDK, in the version that is installed here.

    `marks` tell them from others; those that bear none have names of the patterns `unmarked`.
    `preparer` is a module that replaces the suite's own configuration when pytest loads it, and
    `options` are pytest's own. `start` runs a service for as long as the context lasts, and gives
    the environment of the tests. A test that fails with what the regular expression `refusal` finds
    was refused by name. `processes` run at a time, and a large file is divided between `parts` of
    them. `short` are patterns of the tests of the short form.
    """

    distribution: str
    marks: tuple[str, ...]
    unmarked: tuple[str, ...]
    preparer: str
    options: tuple[str, ...]
    start: Callable[[], AbstractContextManager[Mapping[str, str]]]
    refusal: str
    not_applicable: tuple[NotApplicable, ...]
    short: tuple[str, ...]
    processes: int
    parts: int

    @property
    def version(self) -> str:
        return version(self.distribution)

    def find_reason(self, test: str, marks: set[str]) -> str | None:
        """Return why a test with these marks is not applicable, None when it is."""
        named = any(fnmatchcase(test, pattern) for pattern in self.unmarked)
        live = named or not marks.isdisjoint(self.marks)
        for one in self.not_applicable:
            if any(fnmatchcase(test, pattern) for pattern in one.tests):
                return one.reason
            if not live and not marks.isdisjoint(one.marks):
                return one.reason
        return None if live else UNMARKED


def read_not_applicable(name: str) -> tuple[NotApplicable, ...]:
    """The list of a suite, from the file that holds those of all."""
    text = Path(__file__).with_name("not_applicable.toml").read_text()
    return tuple(
        NotApplicable(one["reason"], tuple(one.get("tests", ())), tuple(one.get("marks", ())))
        for one in tomllib.loads(text)[name]
    )

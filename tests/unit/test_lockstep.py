"""One module has everything that an application imports, and whoever shows one uses it alone."""

import re
from pathlib import Path

import pytest

import lockstep
from tests.programs import run_python

ROOT = Path(__file__).parents[2]
SHOWN = [
    ROOT / "README.md",
    ROOT / "function_app.py",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "cli/templates").rglob("*.txt")),
    *sorted((ROOT / "functions/handlers").glob("*.py")),
]
DEEP = re.compile(r"^\s*(?:from|import) (?:shared|functions)\b.*", re.MULTILINE)


@pytest.mark.parametrize("name", lockstep.__all__)
def test_each_name_is_there_and_says_what_it_is(name: str) -> None:
    found = getattr(lockstep, name)

    assert isinstance(found, str) or found.__doc__


def test_the_names_are_told_in_order_and_no_other_is_found() -> None:
    assert len(set(lockstep.__all__)) == len(lockstep.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Worker'"):
        lockstep.Worker  # noqa: B018 - the lookup is what is tested


def test_importing_it_loads_no_sdk() -> None:
    program = "import sys, lockstep; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = run_python(program).split()

    assert "shared" in loaded
    assert not {"azure", "aiohttp", "opentelemetry", "pyspark"} & set(loaded)


@pytest.mark.parametrize("file", SHOWN, ids=lambda file: str(file.relative_to(ROOT)))
def test_what_shows_an_application_imports_from_here_alone(file: Path) -> None:
    assert DEEP.findall(file.read_text("utf-8")) == []

"""The stored format is known to shared/storage only."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STORAGE = ROOT / "shared" / "storage"
# Fields of stored documents whose names mean nothing else, in an answer of the API for instance.
FIELDS = frozenset({"_etag", "_ts", "identities", "batches", "ttl", "waiting"})
FILES = sorted(
    file
    for folder in ("shared", "functions")
    for file in (ROOT / folder).rglob("*.py")
    if not file.is_relative_to(STORAGE)
)


def stored_names(source: str) -> list[str]:
    """The strings of a module that name a stored field, or a path to one."""
    texts = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    return [t for t in texts if isinstance(t, str) and t.removeprefix("/").split("/")[0] in FIELDS]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_other_module_names_a_stored_field(file: Path) -> None:
    assert stored_names(file.read_text("utf-8")) == []


def test_a_stored_field_elsewhere_would_be_seen() -> None:
    assert stored_names('document["_etag"], {"/outbox": 1}, {"/batches/0": 2}') == [
        "_etag",
        "/batches/0",
    ]

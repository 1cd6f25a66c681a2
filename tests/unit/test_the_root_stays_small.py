"""Whoever opens the checkout sees the product: the root holds few entries, and fewer folders."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The aims, which are reached.
ENTRIES_MAX = 26
VISIBLE_FOLDERS_MAX = 9


def tracked() -> set[str]:
    """Every file that git tracks, by its path from the root."""
    listed = ["git", "ls-files", "-z"]
    said = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True)
    return {file for file in said.stdout.split("\0") if file}


def test_the_root_holds_no_more_entries_and_folders_than_it_did() -> None:
    entries = {file.partition("/")[0] for file in tracked()}
    folders = {file.partition("/")[0] for file in tracked() if "/" in file}
    visible = {name for name in folders if not name.startswith(".")}

    assert len(entries) <= ENTRIES_MAX, sorted(entries)
    assert len(visible) <= VISIBLE_FOLDERS_MAX, sorted(visible)

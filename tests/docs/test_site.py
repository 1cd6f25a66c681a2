"""The documentation as a site: `make docs` finds every link, between pages and out of docs/."""

import sys
from pathlib import Path

import pytest

from docs.site.hooks import ADDED, ROOT, rewrite_links
from local.testing.patience import run_patiently


@pytest.mark.e2e
def test_the_site_is_built_and_no_link_leads_nowhere(tmp_path: Path) -> None:
    command = ["-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    command += ["--config-file", "docs/site/mkdocs.yml"]
    built = run_patiently([sys.executable, *command], seconds=300, cwd=ROOT)

    assert built.returncode == 0, built.stdout + built.stderr
    pages = {
        page.relative_to(ROOT / "docs").with_suffix(".html")
        for page in (ROOT / "docs").rglob("*.md")
    }
    pages |= {Path(place).with_suffix(".html") for place in ADDED.values()}
    missing = [str(page) for page in pages if not (tmp_path / page).exists()]
    assert [one for one in missing if one != "adr/README.html"] == []
    assert "Lockstep is an Azure Functions application" in (tmp_path / "index.html").read_text()


def test_links_between_pages_follow_them_and_links_out_of_them_become_text() -> None:
    docs = ROOT / "docs"

    def links(text: str, source: Path = docs / "cli.md") -> str:
        return rewrite_links(text, source)

    assert links("see [the README](../README.md#x)") == "see [the README](index.md#x)"
    assert links("by [code](../functions/page/page.py)") == "by code"
    assert links("[at](docs/runbook.md#y)", ROOT / "README.md") == "[at](runbook.md#y)"
    assert links("[on](../emulator/docs/control.md)") == "[on](emulator/control.md)"
    assert links("[up](docs/control.md)", ROOT / "emulator/README.md") == "[up](control.md)"

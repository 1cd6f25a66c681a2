"""The documentation as a site: `make docs` finds every link, between pages and out of docs/."""

import sys
from pathlib import Path

import pytest

from docs.site.hooks import ROOT, rewrite_links
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
    missing = [str(page) for page in pages if not (tmp_path / page).exists()]
    assert [one for one in missing if one != "adr/README.html"] == []
    assert "Lockstep is an Azure Functions application" in (tmp_path / "index.html").read_text()


def test_links_out_of_the_pages_become_text() -> None:
    docs = ROOT / "docs"

    assert rewrite_links("see [the README](../README.md#x)", docs) == "see [the README](index.md#x)"
    assert rewrite_links("by [code](../functions/page/page.py)", docs) == "by code"
    assert rewrite_links("in [the runbook](docs/runbook.md#y)", ROOT) == (
        "in [the runbook](runbook.md#y)"
    )

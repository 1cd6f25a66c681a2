"""The documentation as a site: `make docs` finds every link, between pages and out of docs/."""

import json
import re
import sys
from pathlib import Path

import pytest

import lockstep
from docs.site.hooks import ADDED, ROOT, rewrite_links
from local.testing.patience import run_patiently

# What a browser gets by itself for a page.
LOADED = re.compile(
    r'<(?:script|img|iframe|link rel="(?:stylesheet|icon)")[^>]*(?:src|href)="([^"]+)"'
)


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
    shown = {page.relative_to(tmp_path): page.read_text() for page in tmp_path.rglob("*.html")}
    loaded = {src for text in shown.values() for src in LOADED.findall(text)}
    assert {src for src in loaded if "//" in src} == set()
    assert "assets/javascripts/bundle" in "".join(loaded)
    assert "flowchart" not in "".join(shown.values())
    found = json.loads((tmp_path / "search/search_index.json").read_text())["docs"]
    boosts = {one["location"].partition("#")[0]: one.get("boost", 1) for one in found}
    assert {boosts[place] for place in boosts if place.startswith("adr/")} == {0.05}
    assert boosts["sagas.html"] == boosts["handlers.html"] == boosts["api.html"] == 1


def test_the_page_of_the_api_has_every_name_that_an_application_imports() -> None:
    text = (ROOT / "docs/api.md").read_text()
    listed = re.findall(r"^::: [\w.]+\.(\w+)$", text, re.MULTILINE)
    (errors,) = re.findall(r"::: shared.domain.errors\n.*?members: \[(.*?)\]", text, re.DOTALL)

    names = [one for one in listed if one != "errors"] + re.split(r",\s+", errors)
    assert sorted(names) == sorted([*lockstep.__all__, "check", "FinalState"])


def test_links_between_pages_follow_them_and_links_out_of_them_become_text() -> None:
    docs = ROOT / "docs"

    def links(text: str, source: Path = docs / "cli.md", repository: str = "") -> str:
        return rewrite_links(text, source, repository)

    assert links("see [the README](../README.md#x)") == "see [the README](index.md#x)"
    assert links("by [code](../functions/page/page.py)") == "by code"
    assert links("[at](docs/runbook.md#y)", ROOT / "README.md") == "[at](runbook.md#y)"
    assert links("[on](../emulator/docs/control.md)") == "[on](emulator/control.md)"
    assert links("[up](docs/control.md)", ROOT / "emulator/README.md") == "[up](control.md)"
    assert links("in [sagas.md](sagas.md#write-one)") == "in [Sagas](sagas.md#write-one)"
    known = links("by [code](../functions/page/page.py), [all](../cli/)", repository="https://x/y")
    assert known == (
        "by [code](https://x/y/blob/HEAD/functions/page/page.py), [all](https://x/y/tree/HEAD/cli)"
    )

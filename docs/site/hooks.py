"""What turns docs/ and README.md into a site: hooks of MkDocs, which `make docs` runs.

The pages are written to be read in the checkout, so they link to files that no site has. Such a
link becomes its text, once the file was seen to exist; links between pages are MkDocs' to check.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add README.md as the first page."""
    text = rewrite_links((ROOT / "README.md").read_text("utf-8"), ROOT)
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Take links out of a page that leave docs/."""
    if page.file.src_uri == "index.md":
        return markdown
    return rewrite_links(markdown, (DOCS / page.file.src_uri).parent)


def rewrite_links(markdown: str, folder: Path) -> str:
    """Links of a file in `folder` as a page of the site has them; raises PluginError."""

    def rewrite(found: re.Match[str]) -> str:
        mark, text, target, place = found[1], found[2], found[3], found[4] or ""
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        path = (folder / target).resolve()
        if not path.exists():
            raise PluginError(f"{folder}: the link to {target} leads nowhere")
        if path == ROOT / "README.md":
            return f"{mark}[{text}]({'../' if folder != DOCS else ''}index.md{place})"
        if DOCS not in path.parents:
            return text
        return f"{mark}[{text}]({relative(path, folder)}{place})"

    return LINK.sub(rewrite, markdown)


def relative(path: Path, folder: Path) -> str:
    """A page or picture as seen from a page in `folder`; README.md stands in docs/."""
    base = DOCS if folder == ROOT else folder
    return path.relative_to(base, walk_up=True).as_posix()

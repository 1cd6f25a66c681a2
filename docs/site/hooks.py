"""What turns docs/, README.md and the pages of emulator/ into a site: hooks of MkDocs.

The pages are written to be read in the checkout, so they link to files that no site has. Such a
link becomes its text, once the file was seen to exist; links between pages are MkDocs' to check.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EMULATOR = ROOT / "emulator"
# Pages that stand elsewhere in the checkout, and where they are on the site.
ADDED = {
    ROOT / "README.md": "index.md",
    EMULATOR / "README.md": "emulator/index.md",
    **{path: f"emulator/{path.name}" for path in sorted((EMULATOR / "docs").glob("*.md"))},
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand elsewhere."""
    for path, place in ADDED.items():
        text = rewrite_links(path.read_text("utf-8"), path)
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Take links out of a page that leave the site."""
    place = page.file.src_uri
    return markdown if place in ADDED.values() else rewrite_links(markdown, DOCS / place)


def rewrite_links(markdown: str, source: Path) -> str:
    """Links of a file as its page on the site has them; raises PluginError."""

    def rewrite(found: re.Match[str]) -> str:
        mark, text, target, anchor = found[1], found[2], found[3], found[4] or ""
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        path = (source.parent / target).resolve()
        if not path.exists():
            raise PluginError(f"{source}: the link to {target} leads nowhere")
        place = find_place(path)
        if place is None:
            return text
        folder = PurePosixPath(find_place(source) or "").parent
        return f"{mark}[{text}]({PurePosixPath(place).relative_to(folder, walk_up=True)}{anchor})"

    return LINK.sub(rewrite, markdown)


def find_place(path: Path) -> str | None:
    """Where a file is on the site, if it is there."""
    if DOCS in path.parents:
        return path.relative_to(DOCS).as_posix()
    return ADDED.get(path)

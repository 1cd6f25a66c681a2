"""What turns docs/, README.md and the pages of emulator/ into a site: hooks of MkDocs.

The pages are written to be read in the checkout, so they link to files that no site has. Such a
link leads to the repository where its address is known, and otherwise becomes its text, once the
file was seen to exist; links between pages are MkDocs' to check. A page that a text calls by its
file is called by its title.
"""

import re
import tomllib
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
# A search for a task shows how it is done before why it is done so, or what it stands on.
BOOSTS = {"adr/": 0.05, "next/": 0.05, "emulator/": 0.5, "seeds.md": 0.5}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> None:
    """Say on each page of which version it is, and list the records of decisions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    config.site_name = f"Lockstep {project['version']}"
    records = sorted(f"adr/{path.name}" for path in DOCS.glob("adr/0*.md"))
    config.nav[-1]["Decisions"].append({"Records": records})  # type: ignore[index]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand elsewhere."""
    for path, place in ADDED.items():
        files.append(File.generated(config, place, content=path.read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, **_: object) -> str:
    """Make links lead to where the site has what they lead to, and weigh the page for searches."""
    place = page.file.src_uri
    for begin, boost in BOOSTS.items():
        if place.startswith(begin):
            page.meta["search"] = {"boost": boost}
    source = next((path for path, added in ADDED.items() if added == place), DOCS / place)
    return rewrite_links(markdown, source, config.extra["repository"])


def rewrite_links(markdown: str, source: Path, repository: str = "") -> str:
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
            kind = "tree" if path.is_dir() else "blob"
            file = f"{repository}/{kind}/HEAD/{path.relative_to(ROOT)}{anchor}"
            return f"[{text}]({file})" if repository else text
        if text.endswith(".md"):
            text = path.read_text("utf-8").removeprefix("# ").partition("\n")[0]
        folder = PurePosixPath(find_place(source) or "").parent
        return f"{mark}[{text}]({PurePosixPath(place).relative_to(folder, walk_up=True)}{anchor})"

    return LINK.sub(rewrite, markdown)


def find_place(path: Path) -> str | None:
    """Where a file is on the site, if it is there."""
    if DOCS in path.parents:
        return path.relative_to(DOCS).as_posix()
    return ADDED.get(path)

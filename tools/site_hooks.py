"""MkDocs hooks that add pages from the repository root and rewrite links to files outside docs/."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
#: Files in the repository root that become pages of the site, and the names of these pages.
PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from the repository root."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        text = re.sub(r"\]\(docs/", "](", text)
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Replace links to files outside docs/ with links to pages of the site or to the repository."""

    def replace(match: re.Match[str]) -> str:
        path = match[1]
        if path in PAGES:
            return f"]({PAGES[path]})"
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"]({config['repo_url']}/{kind}/main/{path})"

    is_in_subfolder = "/" in page.file.src_uri  # there, "../" refers to docs/
    return markdown if is_in_subfolder else re.sub(r"\]\(\.\./([^)#]+)\)", replace, markdown)

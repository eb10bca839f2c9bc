"""Pages of the project with links that also work on the package index and the documentation site.

As a build hook, it gives the package its README and its URLs. As a program, it collects the pages
and the configuration of the site in build/, where `zensical build` makes build/site of them.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")
SITE = {
    "README.md": "index.md",
    ".github/CHANGELOG.md": "changelog.md",
    ".github/CONTRIBUTING.md": "contributing.md",
    ".github/SECURITY.md": "security.md",
}
"""Pages of the site outside of .github/docs, by path in the repository."""


class CustomMetadataHook(MetadataHookInterface):
    """Hook that sets the fields that depend on where the repository is hosted."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set README and URLs; without a known host there are no URLs."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = with_links(text, "README.md", on_host)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        host = address()
        metadata["urls"] = (
            {}
            if host is None
            else {
                "Source": host,
                "Changelog": f"{host}/blob/HEAD/.github/CHANGELOG.md",
                "Documentation": f"{host}/tree/HEAD/.github/docs",
                "Issues": f"{host}/issues",
            }
        )


def address() -> str | None:
    """Return the URL of the repository, which GitHub Actions states; None elsewhere."""
    server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    return f"{server}/{name}" if server and name else None


def on_host(path: str, *, is_image: bool) -> str | None:
    """Return the URL of a file of the repository at its tag; None if the host is unknown."""
    host, ref = address(), os.environ.get("GITHUB_REF_NAME", "HEAD")
    return host and f"{host}/{'raw' if is_image else 'blob'}/{ref}/{path}"


def on_site(path: str, *, is_image: bool) -> str | None:
    """Return the name of a page or picture of the site, or the URL of another file."""
    name = PurePosixPath(path).name
    if is_image:
        return f"images/{name}"
    if path.startswith(".github/docs/"):
        return name
    return SITE.get(path) or on_host(path, is_image=False)


def with_links(text: str, page: str, target_of: Callable[..., str | None]) -> str:
    """Return the text of a page with other targets of its relative links.

    page: its path in the repository. target_of: returns the target for the path of a file; where
    that is None, a picture is left out and only the words of a link are kept.
    """

    def replaced(match: re.Match[str]) -> str:
        mark, words, relative, heading = match.groups("")
        path = os.path.normpath(PurePosixPath(page).parent / relative).replace(os.sep, "/")
        target = target_of(path, is_image=bool(mark))
        if target is None:
            return "" if mark else words
        return f"{mark}[{words}]({target}{heading})"

    return LINK.sub(replaced, text)


def collect(root: Path, into: Path) -> None:
    """Write the pages and pictures of the site, and beside their directory its configuration."""
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(root / "examples" / "images", into / "images")
    shutil.copy(root / ".github" / "mkdocs.yml", into.parent)
    docs = {f".github/docs/{page.name}": page.name for page in (root / ".github/docs").glob("*.md")}
    for path, name in (SITE | docs).items():
        text = (root / path).read_text(encoding="utf-8")
        (into / name).write_text(with_links(text, path, on_site), encoding="utf-8")


if __name__ == "__main__":
    project = Path(__file__).parents[1]
    collect(project, project / "build" / "pages")

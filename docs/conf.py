"""The configuration of the documentation site, which ``make docs`` builds into build/site.

Pages are Markdown that GitHub shows as well. The reference of commands and of configuration keys is
written into docs/generated before Sphinx reads the pages, and that of Python names comes from the
docstrings (autodoc).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pygments.lexers.special import TextLexer

from pliant import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "tools"))

import command_pages  # noqa: E402  # from docs/tools
import configuration_keys  # noqa: E402
from public_members import is_internal  # noqa: E402

project = "Pliant"
copyright = "the authors of Pliant"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

#: The text of `index.md` is README.md, which GitHub shows for the folder.
exclude_patterns = ["README.md", "tools", "_build"]

myst_enable_extensions = ["deflist"]
#: Headings get the anchors that they have on GitHub.
myst_heading_anchors = 4
#: Docstrings write names of the code in single backticks.
default_role = "code"
add_module_names = False
python_maximum_signature_line_length = 88
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_use_rtype = False
#: Pages are full of options, whose two hyphens would become a dash.
smartquotes = False

html_theme = "furo"
html_title = f"Pliant {release}"
html_copy_source = False

#: Files outside docs, and the pages of the site that have the same content.
OUTSIDE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"}
#: Pages below other pages. GitHub would show a toctree as text, so these pages have none.
BELOW = {"commands": "generated/commands/*", "decisions/README": "/decisions/0*"}
_LINK = re.compile(r"\]\((\.\./[^)#]+)(#[^)]*)?\)")
_COMMAND = re.compile(r"(?m)^\| `([a-z][a-z -]*)` \|")


def _complete(app: Sphinx, page: str, source: list[str]) -> None:
    """Add to a page what only the site shows, and adapt its links; Sphinx calls this for each page.

    The index gets the text of docs/README.md, and the page of commands links to their pages.

    Args:
        app: Sphinx.
        page: the name of the page.
        source: its text as the only element, which is replaced.
    """
    text = source[0]
    if page == "index":
        text = (DOCS / "README.md").read_text(encoding="utf-8") + "\n" + text
    if page == "commands":
        text = _COMMAND.sub(_linked_command, text)
    if page in BELOW:
        text += f"\n```{{toctree}}\n:hidden:\n:glob:\n\n{BELOW[page]}\n```\n"
    source[0] = _LINK.sub(lambda match: _link_of_the_site(page, match), text)


def _linked_command(match: re.Match[str]) -> str:
    return f"| [`{match[1]}`](generated/commands/{match[1].replace(' ', '-')}.md) |"


def _link_of_the_site(page: str, match: re.Match[str]) -> str:
    """Return the text that replaces a link on a page of the site.

    A link to a file outside docs leads to the site's page of this file. If there is none, the path
    of the file is written instead. Other links are unchanged.

    Args:
        page: the name of the page with the link.
        match: the end of the link, with the path and the anchor.
    """
    target = (DOCS / page).parent.joinpath(match[1]).resolve()
    if target.is_relative_to(DOCS):
        return match[0]
    path = str(target.relative_to(DOCS.parent))
    if path in OUTSIDE:
        return f"]({'../' * page.count('/')}{OUTSIDE[path]}{match[2] or ''})"
    return f"] (`{path}` in the repository)"


def _write_generated_pages(app: Sphinx) -> None:
    folder = DOCS / "generated"
    pages = {**command_pages.make_pages(), **configuration_keys.make_pages()}
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Sphinx reads only pages that are newer than its last build.
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in folder.rglob("*.md"):
        if str(path.relative_to(folder)) not in pages:
            path.unlink()


def _skip(
    app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object
) -> bool | None:
    return True if is_internal(app.env.current_document.autodoc_class, name) else None


def _keep_text_before_colon(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Keep napoleon from reading the words before a colon in an attribute's text as its type."""
    if what in {"attribute", "data", "property"}:
        lines.insert(0, "")


def setup(app: Sphinx) -> None:
    """Connect the functions above to events of Sphinx, which calls this function at its start."""
    # Pygments has no lexer for diagrams.
    app.add_lexer("mermaid", TextLexer)
    app.connect("builder-inited", _write_generated_pages)
    app.connect("source-read", _complete)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-docstring", _keep_text_before_colon, priority=100)

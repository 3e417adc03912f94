"""A document as a list of blocks, written as Markdown or as HTML."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; level 1 is the title of the document."""

    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph of plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of plain texts."""

    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class Code:
    """A block of code: a command or its output."""

    text: str


@dataclass(frozen=True, slots=True)
class Grid:
    """A table with a row of column heads."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture in a file, with a text for people who do not see it."""

    path: str
    alt: str


#: A table with more rows is folded until the reader opens it.
_LONG = 40

Block = Heading | Paragraph | Bullets | Code | Grid | Picture

_STYLE = """
body { font-family: sans-serif; max-width: 72em; margin: 2em auto; padding: 0 1em; color: #22272e; }
table { border-collapse: collapse; font-size: 90%; margin: 1em 0; }
th, td { border: 1px solid #d9dde2; padding: 0.2em 0.6em; text-align: left; }
th { background: #f3f5f7; }
pre { background: #f3f5f7; padding: 0.6em; overflow-x: auto; }
img { max-width: 100%; }
"""


def as_markdown(blocks: Sequence[Block]) -> str:
    """Return a document as Markdown."""
    return "\n".join(line for block in blocks for line in (*_markdown(block), ""))


def _markdown(block: Block) -> Iterator[str]:
    match block:
        case Heading(text, level):
            yield f"{'#' * level} {text}"
        case Paragraph(text):
            yield text
        case Bullets(items):
            yield from (f"- {item}" for item in items)
        case Code(text):
            yield from ("```console", text, "```")
        case Grid(heads, rows):
            is_long = len(rows) > _LONG
            if is_long:
                yield f"<details><summary>{len(rows)} rows</summary>\n"
            for row in (heads, ["---"] * len(heads), *rows):
                yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
            if is_long:
                yield "\n</details>"
        case Picture(path, alt):
            yield f"![{alt}]({path})"


def as_html(blocks: Sequence[Block]) -> str:
    """Return a document as one HTML page."""
    title = next((block.text for block in blocks if isinstance(block, Heading)), "")
    body = "\n".join(_html(block) for block in blocks)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n"
        "</body>\n</html>\n"
    )


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{escape(text)}</p>"
        case Bullets(items):
            return "<ul>\n" + "".join(f"<li>{escape(item)}</li>\n" for item in items) + "</ul>"
        case Code(text):
            return f"<pre>{escape(text)}</pre>"
        case Grid(heads, rows):
            head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
            body = "".join(
                "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n"
                for row in rows
            )
            table = f"<table>\n<tr>{head}</tr>\n{body}</table>"
            if len(rows) <= _LONG:
                return table
            return f"<details><summary>{len(rows)} rows</summary>\n{table}</details>"
        case Picture(path, alt):
            return f'<p><img src="{escape(path)}" alt="{escape(alt)}"></p>'


def number(value: float | None) -> str:
    """Return a number with about four digits; empty for None."""
    if value is None:
        return ""
    if value and abs(value) < 10:
        return f"{value:.4f}"
    return f"{value:.2f}" if abs(value) < 1e5 else f"{value:.0f}"

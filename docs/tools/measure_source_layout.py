"""Measure how the source is laid out: ``python docs/tools/measure_source_layout.py [CHECKOUT]``.

Prints, for each part, the number of modules in its largest folder, the length of its longest chain
of imports, and the arrows between its folders. Then it prints sizes of files and functions,
comments, docstrings and class names for all parts.
Compare two commits by running it on a checkout of each.
"""

from __future__ import annotations

import argparse
import ast
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

PARTS: tuple[str, ...] = ("core", "strategies", "simulator", "protos", "faults")
PARTS += ("appkit", "nodectl", "client", "server")

#: A docstring of at most so many words rarely tells more than the name does.
SHORT_DOCSTRING = 4


def modules(root: Path, part: str) -> dict[str, Path]:
    """Return the files of a part, a folder of the checkout such as ``core``, by name of the module.

    Generated modules and ``__init__`` are left out.
    """
    found = {}
    for path in sorted((root / part).rglob("*.py")):
        if "_pb2" not in path.name and path.name != "__init__.py":
            found[".".join(path.relative_to(root).with_suffix("").parts)] = path
    return found


def imported(tree: ast.Module, known: dict[str, Path]) -> Iterator[str]:
    """Yield those modules in ``known`` that a module imports, also inside of functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pliant."):
            base = (node.module or "").removeprefix("pliant.")
            for alias in node.names:
                target = f"{base}.{alias.name}"
                if target in known or base in known:
                    yield target if target in known else base


def longest_chain(arrows: dict[str, set[str]]) -> int:
    """Return how many modules the longest chain of imports has; a circle is followed only once.

    ``arrows`` has the modules that each module imports.
    """
    depth: dict[str, int] = {}

    def visit(name: str, above: frozenset[str]) -> int:
        if name not in depth:
            below = [visit(n, above | {name}) for n in arrows[name] if n not in above]
            depth[name] = 1 + max(below, default=0)
        return depth[name]

    return max(visit(name, frozenset()) for name in list(arrows))


def report_part(root: Path, part: str) -> None:
    """Print one line about the folders and imports of a part, a folder of the checkout."""
    known = modules(root, part)
    folders = Counter(name.rpartition(".")[0] for name in known)
    arrows: dict[str, set[str]] = defaultdict(set)
    for name, path in known.items():
        arrows[name] |= {t for t in imported(ast.parse(path.read_text()), known) if t != name}
    between = {
        (name.rpartition(".")[0], target.rpartition(".")[0])
        for name in known
        for target in arrows[name]
    }
    count = sum(1 for a, b in between if a != b)
    print(
        f"{part:<11} {len(known):>7} {len(folders):>8} {max(folders.values()):>8} "
        f"{longest_chain(arrows):>7} {sum(map(len, arrows.values())):>7} {count:>15}"
    )


def needs_no_docstring(tree: ast.Module) -> set[ast.AST]:
    """Return what needs no docstring: definitions inside functions, and setters of properties.

    The docstring of a property is that of its getter.
    """
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    found: set[ast.AST] = set()
    for function in functions:
        found |= {node for node in ast.walk(function) if node is not function}
        if any(ast.unparse(each).endswith(".setter") for each in function.decorator_list):
            found.add(function)
    return found


def report_all(root: Path) -> None:
    """Print sizes, comments and docstrings of all parts of the checkout together."""
    files, functions, comments, lines = [], [], 0, 0
    classes: dict[str, set[str]] = defaultdict(set)
    short = missing = 0
    for part in PARTS:
        for name, path in modules(root, part).items():
            text = path.read_text()
            files.append(text.count("\n"))
            lines += len([line for line in text.splitlines() if line.strip()])
            comments += len([line for line in text.splitlines() if line.strip().startswith("#")])
            tree = ast.parse(text)
            exempt = needs_no_docstring(tree)
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    classes[node.name].add(name)
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                functions.append((node.end_lineno or node.lineno) - node.lineno + 1)
                docstring = ast.get_docstring(node)
                is_public = not node.name.startswith("_") and node not in exempt
                missing += docstring is None and is_public
                short += docstring is not None and len(docstring.split()) <= SHORT_DOCSTRING
    homonyms = sorted(name for name, places in classes.items() if len(places) > 1)
    for what, sizes in (("file", files), ("function", functions)):
        p95 = statistics.quantiles(sizes, n=20)[-1]
        print(f"{what} length in lines: median {statistics.median(sizes):g}, 95 % {p95:.0f}")
    print(f"comment lines: {comments / lines:.1%} of {lines} lines that are not blank")
    print(f"docstrings of functions with at most {SHORT_DOCSTRING} words: {short}")
    print(f"public functions without a docstring: {missing}")
    print(f"public class names that two modules define: {len(homonyms)}: {' '.join(homonyms)}")


def main() -> None:
    """Measure the checkout that the command line names, or this one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[2])
    root = parser.parse_args().root
    if missing := [part for part in PARTS if not (root / part).is_dir()]:
        parser.error(f"{root} is no checkout of Pliant: it has no folder {missing[0]!r}")
    print("part        modules  folders  largest   chain  imports  between folders")
    for part in PARTS:
        report_part(root, part)
    report_all(root)


if __name__ == "__main__":
    main()

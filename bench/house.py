"""Counts of the repository: lines, modules, sizes of files, class names that are defined twice.

python bench/house.py [--root CHECKOUT]
"""

from __future__ import annotations

import argparse
import ast
import statistics
from collections import Counter
from pathlib import Path

FOLDERS = ("glue", "providers", "tools", "prompts", "agents")
NEWCOMER = ("messages", "provider", "loop", "function", "agent", "session", "options")  # what a newcomer reads in glue/


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1], help="the checkout")
    root = parser.parse_args().root
    texts = {path: path.read_text() for folder in FOLDERS for path in sorted((root / folder).rglob("*.py"))}
    texts = {path: text for path, text in texts.items() if not _is_linked(path, root)}
    sizes = {path: len(text.splitlines()) for path, text in texts.items()}
    modules = {path: size for path, size in sizes.items() if path.name != "__init__.py" or size > 5}
    classes = Counter(
        node.name
        for text in texts.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    twice = sorted(name for name, number in classes.items() if number > 1)
    core = sum(size for path, size in sizes.items() if _is_core(path, root))
    largest = max(sizes, key=sizes.__getitem__)
    print(f"{'lines':<28} {sum(sizes.values()):,}")
    print(f"{'modules':<28} {len(sizes)}")
    print(f"{'median module':<28} {statistics.median(modules.values()):.0f} lines")
    print(f"{'largest module':<28} {sizes[largest]} lines, {largest.relative_to(root)}")
    print(f"{'modules under 60 lines':<28} {sum(size < 60 for size in modules.values())}")
    print(f"{'class names defined twice':<28} {len(twice)}{': ' if twice else ''}{', '.join(twice)}")
    print(f"{'what a newcomer reads':<28} {core:,} lines")


def _is_linked(path: Path, root: Path) -> bool:
    parts = path.relative_to(root).parts
    return parts[0] == "glue" and len(parts) > 1 and parts[1] in FOLDERS


def _is_core(path: Path, root: Path) -> bool:
    parts = path.relative_to(root).with_suffix("").parts
    return parts[0] == "glue" and len(parts) > 1 and parts[1] in NEWCOMER


if __name__ == "__main__":
    main()

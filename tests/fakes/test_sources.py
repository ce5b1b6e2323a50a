"""The imports that patterns find in the files of the repository are those that the parser finds."""

from __future__ import annotations

import pytest

from fakes.sources import FOLDERS, imports, imports_of, parsed_imports, python_files, read

CODES = [
    "import a\nimport b.c, d as e\nfrom f import g\nfrom h.i import j as k, l",
    "from a import (\n    b,  # a (comment)\n    c as d,\n)\n",
    "from a import b, \\\n    c\nimport d, \\\n    e\nfrom f \\\n    import g",
    "def f():\n    import a\n    from b import c\n\tif d:\n\t\timport e".expandtabs(4),
    '"""Text.\n\nimport a\nfrom b import c\n"""\nimport d',
    "text = '''\nimport a\n''' + \"\"\"\nfrom b import c\n\"\"\"\nimport d",
    'quotes = \'"""\'\nimport a\nmore = \'"""\'',
    "x = 1  # it's here\nimport a\ny = 2  # isn't it?",
    "x = 'a\\'b'\nimport a\ny = '\\\\'\nimport b\nz = r'\\''",
    "from __future__ import annotations\nimport_a = important = 1\nfrom_b = import_a",
    "def f():\n    yield from g()\n    raise h from None",
]


@pytest.mark.parametrize("text", CODES)
def test_imports_are_found_without_a_parser(text: str) -> None:
    found = {(each.module, each.name, each.known_as) for each in imports_of(text)}

    assert found == parsed_imports(text)


def test_imports_inside_functions_are_indented() -> None:
    outer, inner = imports_of("import a\ndef f():\n    import b")

    assert (outer.is_indented, inner.is_indented) == (False, True)


@pytest.mark.soak
def test_the_imports_of_every_file_are_found_without_a_parser() -> None:
    for path in python_files(*FOLDERS):
        found = {(each.module, each.name, each.known_as) for each in imports(path)}
        assert found == parsed_imports(read(path)), path

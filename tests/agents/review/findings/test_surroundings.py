"""Callers and existing tests of the changed functions."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.checkouts import call as git

from glue.agents.review.change.collect import collect, from_texts
from glue.agents.review.findings.surroundings import changed_functions, surroundings
from glue.tools.git import Repo

OLD = "def match(text):\n    if not text:\n        return None\n    return text[0]\n"
NEW = "def match(text):\n    return text[0]\n"


def around(root: Path, files: dict[str, str], path: str, old: str, new: str) -> str:
    """Return the surroundings of a change of one file in a repository with other files."""
    git(root, "init", "-q", "-b", "main", "--template=")
    for name, text in {**files, path: old}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    git(root, "checkout", "-qb", "work")
    (root / path).write_text(new)
    git(root, "commit", "-qam", "second")
    with Repo(root) as repo:
        return surroundings(collect(root, base="main"), repo)


def test_only_callers_that_import_an_ambiguous_name_are_shown(tmp_path: Path) -> None:
    files = {
        "page.py": "from words import match\n\nprint(match('a'))\n",
        "other.py": "import re\n\ndef match(row):\n    return re.match(row)\n\nmatch('b')\n",
        "CHANGELOG.md": "- match() is faster\n",
    }

    text = around(tmp_path, files, "words.py", OLD, NEW)

    assert "page.py:3: print(match('a'))" in text
    assert "other.py" not in text
    assert "CHANGELOG" not in text


def test_callers_of_a_unique_method_are_shown_without_an_import(tmp_path: Path) -> None:
    files = {"page.rb": "shop.total_price([])\n"}
    old = "class Shop\n  def total_price(rows)\n    rows.sum\n  end\nend\n"

    text = around(tmp_path, files, "shop.rb", old, old.replace("rows.sum", "rows.sum / rows.size"))

    assert "page.rb:1: shop.total_price([])" in text


def test_calls_in_the_package_and_through_it_are_callers_in_go(tmp_path: Path) -> None:
    body = "\treturn path\n}\n"
    files = {
        "store/use.go": "package store\n\nfunc Use() { Clean(1) }\n",
        "web/web.go": "package web\n\nfunc Serve() { store.Clean(2) }\n",
        "text/text.go": "package text\n\nfunc Clean(x int) int {\n\treturn x\n}\n",
        "text/run.go": "package text\n\nfunc Run() { Clean(3) }\n",
    }
    old = f"package store\n\nfunc Clean(path int) int {{\n{body}"

    text = around(tmp_path, files, "store/store.go", old, old.replace("path\n}", "-path\n}"))

    assert "store/use.go:3" in text
    assert "web/web.go:3" in text
    assert "text/run.go" not in text


@pytest.mark.parametrize(
    ("name", "test", "shown"),
    [
        ("tests/test_words.py", "def test_none():\n    assert match('') is None\n", "1: test_none"),
        ("words.test.ts", "it('has no match', () => {\n  match('')\n})\n", "1: has no match"),
        ("spec/words_spec.rb", "it 'has no match' do\n  match('')\nend\n", "1: has no match"),
    ],
)
def test_existing_tests_are_listed_by_name(
    tmp_path: Path, name: str, test: str, shown: str
) -> None:
    text = around(tmp_path, {name: test}, "words.py", OLD, NEW)

    assert text == f"Existing tests closest to the change, best match first:\n  {name}:{shown}"


def test_function_with_only_deleted_lines_is_changed() -> None:
    bundle = from_texts({"words.py": OLD}, {"words.py": NEW})

    assert [function.name for function in changed_functions(bundle)] == ["match"]


def test_nothing_is_known_without_a_repository() -> None:
    assert surroundings(from_texts({"words.py": OLD}, {"words.py": NEW}), None) == ""


def test_properties_documents_and_definitions_are_not_calls(tmp_path: Path) -> None:
    files = {
        "a.ts": "import {abort} from './words'\n\nconst x = timings.abort - 1\nabort(x)\n",
        "b.ts": "class B {\n  async abort(x) {\n    stop(x)\n  }\n}\n",
    }
    old = "export function abort(x) {\n  return x\n}\n"

    text = around(tmp_path, files, "words.ts", old, old.replace("return x", "return -x"))

    assert text == "Other calls of the changed functions:\n  a.ts:4: abort(x)"


def test_imports_over_several_lines_and_exports_of_a_package_are_found(tmp_path: Path) -> None:
    files = {
        "lib/__init__.py": "from lib.words import match\n",
        "a.py": "from lib.words import (\n    other,\n    match,\n)\n\nmatch('a')\n",
        "b.py": "import lib\n\n\ndef first(row):\n    return lib.match(row)\n",
        "c.py": "import re\n\n\ndef match(row):\n    return row\n\n\nmatch('c')\n",
    }

    text = around(tmp_path, files, "lib/words.py", OLD, NEW)

    assert text.splitlines()[1:] == [
        "  a.py:6: match('a')",
        "  b.py:5 in first: return lib.match(row)",
    ]


def test_callers_of_a_changed_constructor_are_calls_of_its_class(tmp_path: Path) -> None:
    old = "class Shop:\n    def __init__(self, rows):\n        self.rows = rows\n"

    text = around(
        tmp_path,
        {"page.py": "from shop import Shop\n\nShop([])\n"},
        "shop.py",
        old,
        old.replace("= rows", "= list(rows)"),
    )

    assert "  page.py:3: Shop([])" in text


def test_function_that_is_called_in_its_own_file_only_shows_the_callers_of_its_callers(
    tmp_path: Path,
) -> None:
    old = "def match(text):\n    return text[0]\n\n\ndef first(text):\n    return match(text)\n"
    files = {"page.py": "from words import first\n\n\ndef show():\n    print(first('a'))\n"}

    text = around(tmp_path, files, "words.py", old, old.replace("[0]", "[1]"))

    assert text.splitlines()[1:] == [
        "  words.py:6 in first: return match(text)",
        "  page.py:5 in show: print(first('a'))  (first calls match)",
    ]


def test_callers_of_callers_are_shown_only_if_no_other_file_calls_the_function(
    tmp_path: Path,
) -> None:
    old = "def match(text):\n    return text[0]\n\n\ndef first(text):\n    return match(text)\n"
    files = {"page.py": "from words import first, match\n\nprint(match('a'), first('b'))\n"}

    text = around(tmp_path, files, "words.py", old, old.replace("[0]", "[1]"))

    assert text.splitlines()[1:] == [
        "  page.py:3: print(match('a'), first('b'))",
        "  words.py:6 in first: return match(text)",
    ]


def test_callers_outside_of_functions_and_changed_callers_have_no_callers_of_their_own(
    tmp_path: Path,
) -> None:
    old = (
        "def match(text):\n    return text[0]\n\n\n"
        "def first(text):\n    row = text[0]\n    return match(row)\n\n\n"
        "class Row:\n    def __len__(self):\n        return match('')\n\n\n"
        "match('b')\n"
    )
    page = "from words import first\n\nfirst('a')\nrows = (1, 2)\nrows.__len__()\n"

    text = around(tmp_path, {"page.py": page}, "words.py", old, old.replace("[0]", "[1]"))

    assert text.splitlines()[1:] == [
        "  words.py:7 in first: return match(row)",
        "  words.py:12 in __len__: return match('')",
        "  words.py:15: match('b')",
        "  page.py:3: first('a')",
    ]


def test_function_that_is_never_called_by_name_shows_where_it_is_used(tmp_path: Path) -> None:
    files = {
        "page.py": "from words import match\n\nSTEPS = [\n    match,\n]\n",
        "help.py": "TEXT = 'words that match, and others'\n",
    }

    text = around(tmp_path, files, "words.py", OLD, NEW)

    assert text.splitlines()[1:] == ["  page.py:4: match,"]


def test_variable_with_the_name_of_a_changed_method_is_not_a_use(tmp_path: Path) -> None:
    old = "class Shop:\n    def owner(self):\n        return 1\n"
    files = {"page.py": "owner, name = read()\nprint(owner)\nrun(shop.owner)\n"}

    text = around(tmp_path, files, "shop.py", old, old.replace("1", "2"))

    assert text.splitlines()[1:] == ["  page.py:3: run(shop.owner)"]


def test_short_and_special_names_are_not_searched_for() -> None:
    names = ("ab", "abc", "main", "__str__")
    text = "".join(f"def {name}():\n    return 1\n\n\n" for name in names)

    bundle = from_texts({"words.py": text}, {"words.py": text.replace("1", "2")})

    assert [function.name for function in changed_functions(bundle)] == ["abc"]


def test_comments_docstrings_and_changed_lines_are_not_callers(tmp_path: Path) -> None:
    page = (
        "from words import match\n"
        "\n"
        "# match(x) is slow\n"
        "def show():\n"
        '    """Show a page.\n'
        "\n"
        "    Uses match(x) for this.\n"
        '    """\n'
        "    print(match('a'))\n"
    )
    new = NEW + "\n\nprint(match('b'))\n"

    text = around(tmp_path, {"page.py": page}, "words.py", OLD, new)

    assert text.splitlines()[1:] == ["  page.py:9 in show: print(match('a'))"]


def test_triple_quotes_are_strings_only_in_python(tmp_path: Path) -> None:
    page = 'import {abort} from \'./words\'\nconst a = `"""`\nabort(1)\nconst b = `"""`\n'
    old = "export function abort(x) {\n  return x\n}\n"

    text = around(
        tmp_path, {"page.ts": page}, "words.ts", old, old.replace("return x", "return -x")
    )

    assert text.splitlines()[1:] == ["  page.ts:3: abort(1)"]

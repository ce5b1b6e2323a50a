"""The existing tests that are closest to a change."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.checkouts import call as git

from glue.agents.review.change.collect import collect, from_texts
from glue.agents.review.findings import related_tests as module
from glue.agents.review.findings.related_tests import change_words, find_tests, related_tests
from glue.tools.git import Repo

OLD = """class Basket:
    def _add_up(self, rows):
        if not rows:
            raise EmptyBasket("nothing to deliver")
        return sum(rows)
"""
NEW = OLD.replace(
    """        if not rows:
            raise EmptyBasket("nothing to deliver")
""",
    "",
)
TESTS = """import pytest


def test_price_of_two_rows():
    assert shop("2 apples") == 2


def test_empty_basket_is_refused():
    with pytest.raises(EmptyBasket):
        shop("")


@pytest.mark.parametrize("name", ["apples", "pears"])
def test_names_are_shown(name):
    assert name in page(name)
"""


def found(root: Path, files: dict[str, str], *, new: dict[str, str]) -> tuple[list[str], int]:
    """Return the names of the tests that are closest to a change, and the unread files."""
    git(root, "init", "-q", "-b", "main", "--template=")
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    git(root, "checkout", "-qb", "work")
    for name, text in new.items():
        (root / name).write_text(text)
    git(root, "commit", "-qam", "second")
    with Repo(root) as repo:
        tests, unread = related_tests(collect(root, base="main"), repo)
    return [test.name for test in tests], unread


def test_test_that_shares_rare_words_with_the_change_is_first(tmp_path: Path) -> None:
    files = {"basket.py": OLD, "tests/test_shop.py": TESTS}

    names, unread = found(tmp_path, files, new={"basket.py": NEW})

    assert names[0] == "test_empty_basket_is_refused"
    assert "test_names_are_shown" not in names
    assert unread == 0


def test_tests_that_the_change_edits_are_left_out(tmp_path: Path) -> None:
    files = {"basket.py": OLD, "tests/test_shop.py": TESTS}
    edited = TESTS.replace('shop("")', 'shop(" ")')

    names, _ = found(tmp_path, files, new={"basket.py": NEW, "tests/test_shop.py": edited})

    assert "test_empty_basket_is_refused" not in names


def test_test_files_near_the_change_are_read_first_if_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 1)
    files = {
        "basket.py": OLD,
        "tests/test_a.py": TESTS,
        "tests/test_basket.py": "def test_basket():\n    Basket()\n",
    }

    names, unread = found(tmp_path, files, new={"basket.py": NEW})

    assert names == ["test_basket"]
    assert unread == 1


def test_words_are_those_of_changed_lines_functions_and_classes() -> None:
    words = change_words(from_texts({"basket.py": OLD}, {"basket.py": NEW}))

    assert {"emptybasket", "empty", "basket", "_add_up", "add", "deliver"} <= words.keys()
    assert "sum" not in words


@pytest.mark.parametrize(
    ("path", "text", "names"),
    [
        ("test_a.py", TESTS, ["test_price_of_two_rows", "test_empty_basket_is_refused"]),
        ("a.test.ts", "describe('shop', () => {\n  it('is open', () => {\n  })\n})\n", ["is open"]),
        ("a_test.go", "func TestOpen(t *testing.T) {\n\topen()\n}\n", ["TestOpen"]),
        ("tests/a.rs", "#[test]\nfn opens() {\n    open();\n}\n", ["opens"]),
        ("spec/a_spec.rb", "it 'opens' do\n  open\nend\n", ["opens"]),
    ],
)
def test_tests_of_a_file_are_found_by_name_mark_or_call(
    path: str, text: str, names: list[str]
) -> None:
    assert [test.name for test in find_tests(path, text)][:2] == names

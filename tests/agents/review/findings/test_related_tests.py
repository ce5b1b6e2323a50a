"""The existing tests that are closest to a change."""

from __future__ import annotations

from collections import Counter
from math import log
from pathlib import Path

import pytest
from fakes.checkouts import call as git

from glue.agents.review.change.collect import collect, from_texts
from glue.agents.review.findings import related_tests as module
from glue.agents.review.findings.related_tests import (
    ExistingTest,
    bm25,
    change_words,
    find_tests,
    related_tests,
)
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
        ("a.test.js", "test('is open', () => {\n  open()\n})\n", ["is open"]),
        ("a_test.go", "func TestOpen(t *testing.T) {\n\topen()\n}\n", ["TestOpen"]),
        ("tests/a.rs", "#[test]\nfn opens() {\n    open();\n}\n", ["opens"]),
        ("tests/a.rs", "fn helper() {\n    open();\n}\n#[test]", []),
        ("spec/a_spec.rb", "it 'opens' do\n  open\nend\n", ["opens"]),
    ],
)
def test_tests_of_a_file_are_found_by_name_mark_or_call(
    path: str, text: str, names: list[str]
) -> None:
    assert [test.name for test in find_tests(path, text)][:2] == names


def test_words_of_tests_and_documents_do_not_count() -> None:
    new = {"tests/test_a.py": "def test_a():\n    zebra()\n", "notes.md": "A giraffe.\n"}

    assert change_words(from_texts({}, new)) == {}


def test_words_of_the_class_around_a_changed_line_count() -> None:
    old = "class Zebra:\n    def feed(self):\n        return 1\n"

    words = change_words(from_texts({"a.py": old}, {"a.py": old.replace("1", "2")}))

    assert words == {"zebra": 1, "feed": 1}


def test_identifiers_count_once_and_their_longer_parts_too() -> None:
    text = "def test_a():\n    load(readFile(to_row, x))\n    assert ok\n"

    (found,) = find_tests("test_a.py", text)

    assert found.words == Counter(
        ("test_a", "load", "readfile", "read", "file", "to_row", "row", "assert", "ok")
    )


def existing(**words: int) -> ExistingTest:
    return ExistingTest("tests/test_a.py", 1, 1, 2, "test_a", Counter(words))


def test_rare_words_and_short_tests_have_a_higher_score() -> None:
    long, short = existing(basket=2, apple=1), existing(apple=1)

    scores = bm25(Counter(basket=3, apple=1), [long, short])

    rare, common = log(1 + 1.5 / 1.5), log(1 + 0.5 / 2.5)
    assert scores == pytest.approx(
        [
            # The long test has 1.5 times the average length, the short one half of it.
            3 * rare * 2 * 2.2 / (2 + 1.2 * 1.4) + common * 2.2 / (1 + 1.2 * 1.4),
            common * 2.2 / (1 + 1.2 * 0.6),
        ]
    )
    assert bm25(Counter(basket=1), []) == []
    assert bm25(Counter(basket=1), [existing()]) == [0.0]


def test_only_tests_that_come_close_to_the_best_one_are_listed(tmp_path: Path) -> None:
    tests = (
        "def test_all():\n    raises(EmptyBasket, deliver, add_up)\n\n\n"
        "def test_one():\n    rows()\n    much(more, than, that, is, in, this, long, test)\n\n\n"
        "def test_none():\n    price()\n"
    )
    files = {"basket.py": OLD, "notes.md": "One.\n", "tests/test_shop.py": tests}

    assert found(tmp_path, files, new={"basket.py": NEW}) == (["test_all"], 0)


def test_nothing_is_listed_for_a_change_that_shares_no_word_with_a_test(tmp_path: Path) -> None:
    files = {"basket.py": OLD, "a.py": "x = 1\n", "tests/test_shop.py": TESTS}

    assert found(tmp_path, files, new={"a.py": "giraffe = 1\n"}) == ([], 0)


@pytest.mark.parametrize("name", ["basket.py", "notes.md"])
def test_repository_without_tests_has_none_to_list(tmp_path: Path, name: str) -> None:
    files = {"basket.py": OLD, "notes.md": "One.\n"}

    assert found(tmp_path, files, new={name: "Two = 2\n"}) == ([], 0)


def test_tests_in_the_language_of_the_change_are_read_first_up_to_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_TEXT", len(TESTS))
    script = "it('refuses an empty basket', () => {\n  EmptyBasket()\n})\n"
    files = {"basket.py": OLD, "tests/basket.test.js": script, "tests/test_shop.py": TESTS}

    names, unread = found(tmp_path, files, new={"basket.py": NEW})

    assert names == ["test_empty_basket_is_refused"]
    assert unread == 1


def test_that_ends_above_an_added_line_is_listed(tmp_path: Path) -> None:
    text = "def test_basket():\n    EmptyBasket()\n"
    files = {"basket.py": OLD, "tests/test_shop.py": text}
    new = {"basket.py": NEW, "tests/test_shop.py": f"{text}X = 1\n"}

    assert found(tmp_path, files, new=new) == (["test_basket"], 0)


def test_called_test_has_the_words_and_lines_of_its_block() -> None:
    text = "zebra()\nit('is open', () => {\n  open()\n})\n"

    (found,) = find_tests("a.test.js", text)

    assert (found.start, found.line, found.end) == (2, 2, 4)
    assert found.words == Counter(["it", "is", "open", "open", "=>"]) - Counter(["is"])


def test_equally_close_tests_are_all_listed_up_to_eight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RELEVANCE", 1.0)
    tests = "".join(f"def test_{n}():\n    EmptyBasket({n})\n\n\n" for n in range(9))
    files = {"basket.py": OLD, "tests/test_shop.py": tests}

    assert found(tmp_path, files, new={"basket.py": NEW}) == ([f"test_{n}" for n in range(8)], 0)

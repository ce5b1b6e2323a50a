"""Find the existing tests that are closest to a change, by the words that they share with it.

Few tests call the changed function by its name: most go through a public function, a class or a
command. So each test function of the repository is compared with the words of the changed lines,
functions and classes. A word that few tests contain counts more than a common one (BM25).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import log
from pathlib import PurePosixPath

from glue.agents.review.change.collect import file_text
from glue.agents.review.change.languages import block_end, functions, is_test, language
from glue.agents.review.records import Bundle
from glue.tools.git import Repo, TreeEntry

TESTS = 8  # tests in a prompt
NAME = 120  # characters of the name of a test
RELEVANCE = 0.4  # share of the best score that a listed test reaches
MAX_FILES = 600  # test files that are read
MAX_TEXT = 6_000_000  # characters of test files that are read
# Parameters of BM25: saturation of repeated words, and how much long tests are discounted.
_SATURATION = 1.2
_LENGTH = 0.8
# Identifiers, and operators of two characters or more.
_WORD = re.compile(r"[A-Za-z_]\w*|[^\s\w\"'()\[\]{},:;]{2,}")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")  # of camelCase or snake_case
_COMMON = frozenset("self this def return if else for in not and or is import from test".split())
_TEST_NAME = re.compile(r"[Tt]est")
# The line above a test whose name does not say so: @Test, #[test], [Fact].
_TEST_MARK = re.compile(r"\s*(?:@|#\[|\[)\s*(?:\w+::)?(?:[Tt]est|Fact|Theory)\b")
# A test that is a call with a text: it("works", ...), describe 'x' do.
_CALLED_TEST = re.compile(r"\s*(?:it|test|specify)\w*\W+[\"'`](?P<name>[^\"'`\n]+)")


@dataclass(frozen=True, slots=True)
class ExistingTest:
    """A test of the repository: its path, name, words, and first, header and last line number.

    `start` is the line of the first decorator or, without a decorator, of the header. `line` is the
    header, and `end` is the last line.
    """

    path: str
    start: int
    line: int
    end: int
    name: str
    words: Counter[str]


def related_tests(bundle: Bundle, repo: Repo) -> tuple[list[ExistingTest], int]:
    """Return the tests closest to a change, best first, and the number of test files not read.

    There are at most TESTS tests. Tests that the change itself edits are left out, because the diff
    shows them.
    """
    wanted = change_words(bundle)
    if not wanted:
        return [], 0
    tests, unread = _read_tests(bundle, repo)
    scores = bm25(wanted, tests)
    ranked = sorted(
        zip(scores, tests, strict=True), key=lambda row: (-row[0], row[1].path, row[1].line)
    )
    best = ranked[0][0] if ranked else 0.0
    close = [test for score, test in ranked if score > 0 and score >= RELEVANCE * best]
    return close[:TESTS], unread


def change_words(bundle: Bundle) -> Counter[str]:
    """Count the words in the changed lines and in the names of their functions and classes.

    Each word has the number of changed lines and names in which it occurs. Tests are left out.
    """
    words: Counter[str] = Counter()
    for file in bundle.files:
        if is_test(file.path) or not language(file.path):
            continue
        changed = (line.text for hunk in file.hunks for line in hunk.lines if line.kind != " ")
        words.update({word for text in changed for word in _words(text)})
        for function in functions(bundle.head.get(file.path, "")):
            if any(function.start <= line <= function.end for line in file.touched):
                words.update(set(_words(function.name)))
                words.update(set(_words(function.owner)))
    return words


def find_tests(path: str, text: str) -> Iterator[ExistingTest]:
    """Yield the tests of a file: test functions, and calls such as `it("adds", ...)`."""
    rows = text.split("\n")
    for function in functions(text):
        if _CALLED_TEST.match(rows[function.header - 1]):
            continue  # `test("adds", () => {` looks like a method with the name `test`
        above = rows[function.header - 2] if function.header > 1 else ""
        if _TEST_NAME.match(function.name) or _TEST_MARK.match(above):
            start, line, end = function.start, function.header, function.end
            words = Counter(_words("\n".join(rows[start - 1 : end])))
            yield ExistingTest(path, start, line, end, function.name, words)
    for at, row in enumerate(rows, 1):
        match = _CALLED_TEST.match(row)
        if match:
            end = block_end(rows, at)
            words = Counter(_words("\n".join(rows[at - 1 : end])))
            yield ExistingTest(path, at, at, end, match["name"], words)


def _words(text: str) -> Iterator[str]:
    """Yield the identifiers, parts of identifiers and operators of a text, all in lower case.

    `readFile` yields `readfile`, `read` and `file`. Common words such as `return` are left out.
    """
    for word in _WORD.findall(text):
        yield from _parts(word)


@lru_cache(maxsize=50_000)
def _parts(word: str) -> tuple[str, ...]:
    parts = [part.lower() for part in _PART.findall(word)]
    long = [part for part in parts if len(part) > 2] if len(parts) > 1 else []
    return tuple(part for part in (word.lower(), *long) if len(part) > 1 and part not in _COMMON)


def _read_tests(bundle: Bundle, repo: Repo) -> tuple[list[ExistingTest], int]:
    """Read test files; return tests that the change does not edit, and the number of unread files.

    Files in the language and with the names of the change are read first, in case there are too
    many.
    """
    head = bundle.change.head_sha
    entries = [
        entry
        for entry in repo.list_tree(head)
        if entry.kind == "blob" and is_test(entry.path) and language(entry.path)
    ]
    edited = {file.path: file.touched for file in bundle.files}
    tests: list[ExistingTest] = []
    size = read = 0
    for entry in _nearest_first(entries, bundle):
        if read >= MAX_FILES or size >= MAX_TEXT:
            break
        read += 1
        text = file_text(repo, head, entry.path) or ""
        size += len(text)
        touched = edited.get(entry.path, frozenset())
        tests += [
            test
            for test in find_tests(entry.path, text)
            if touched.isdisjoint(range(test.start, test.end + 1))
        ]
    return tests, len(entries) - read


def _nearest_first(entries: Iterable[TreeEntry], bundle: Bundle) -> list[TreeEntry]:
    """Return the test files in a new order: those in the language of the change first.

    Of these, files whose path shares a word with a path of the change come first.
    """
    languages = {language(file.path) for file in bundle.files}
    words = {word for file in bundle.files for word in _words(PurePosixPath(file.path).stem)}

    def distance(entry: TreeEntry) -> tuple[bool, bool, str]:
        is_other = language(entry.path) not in languages
        return is_other, words.isdisjoint(_words(entry.path)), entry.path

    return sorted(entries, key=distance)


def bm25(wanted: Counter[str], tests: list[ExistingTest]) -> list[float]:
    """Return the BM25 score of each test for the words `wanted`, in the order of `tests`."""
    frequency = Counter(word for test in tests for word in test.words if word in wanted)
    lengths = [test.words.total() for test in tests]
    average = sum(lengths) / len(lengths) if lengths else 0.0
    rarity = {
        word: log(1 + (len(tests) - count + 0.5) / (count + 0.5))
        for word, count in frequency.items()
    }
    scores = []
    for test, length in zip(tests, lengths, strict=True):
        discount = _SATURATION * (1 - _LENGTH + _LENGTH * length / average) if average else 0.0
        score = 0.0
        for word, weight in wanted.items():
            count = test.words.get(word, 0)
            if count:
                score += weight * rarity[word] * count * (_SATURATION + 1) / (count + discount)
        scores.append(score)
    return scores

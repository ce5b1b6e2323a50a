"""Kinds of source files, and the functions in them."""

from __future__ import annotations

import pytest

from glue.agents.review.change.languages import (
    functions,
    is_doc,
    is_generated,
    is_test,
    language,
    opens_block,
)

TYPESCRIPT = """\
export default function A({ x }: P) {
  const f = async (y) => {
    go();
  };
}
class B {
  run(z: T): void {
    if (z) {
      stop();
    }
  }
}
"""
PYTHON = """\
class A:
    @x(
        1,
    )
    @y
    def f(self):
        def inner():
            return 1

        return inner


def g():
    pass
"""
GO = """\
func (s *Store) Get(name string) (Item, error) {
\tif name == "" {
\t\treturn Item{}, errMissing
\t}
\treturn s.items[name], nil
}
"""
RUBY = "class A\n  def call(env)\n    run(env)\n  end\n\n  def ok?\n    true\n  end\nend\n"
RUST = "impl A {\n    pub fn size(&self) -> usize {\n        self.n\n    }\n}\n"
JAVA = "class A {\n  public int size(List<T> all) {\n    return all.size();\n  }\n}\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (TYPESCRIPT, [("A", 1, 5), ("f", 2, 4), ("run", 7, 11)]),
        (PYTHON, [("f", 2, 10), ("inner", 7, 8), ("g", 13, 14)]),
        (GO, [("Get", 1, 6)]),
        (RUBY, [("call", 2, 4), ("ok?", 6, 8)]),
        (RUST, [("size", 2, 4)]),
        (JAVA, [("size", 2, 4)]),
    ],
    ids=["typescript", "python", "go", "ruby", "rust", "java"],
)
def test_functions_have_names_and_lines_with_decorators(
    text: str, found: list[tuple[str, int, int]]
) -> None:
    assert [(one.name, one.start, one.end) for one in functions(text)] == found


@pytest.mark.parametrize(
    "line", ["if (x) {", "  return f(x);", "x = f(1)", "for (;;) {", "} else {"]
)
def test_statements_do_not_open_functions(line: str) -> None:
    assert not opens_block(line)


def test_files_have_a_language_by_their_suffix() -> None:
    assert [language(path) for path in ("a.py", "b/c.TSX", "d.rs", "e.md", "Makefile")] == [
        "python",
        "js",
        "rust",
        "",
        "",
    ]


@pytest.mark.parametrize(
    "path", ["tests/a.py", "test_a.py", "a_test.go", "src/a.spec.ts", "x/__tests__/a.js"]
)
def test_test_files_are_recognised_by_their_path(path: str) -> None:
    assert is_test(path)


@pytest.mark.parametrize(
    ("text", "generated"),
    [
        ("\n" * 590 + "@generated", True),
        ("\n" * 591 + "@generated", False),  # not in the first 600 characters
        ("x" * 2_000, False),
        ("x" * 2_001, True),
        ("short line\n" * 54_545 + "12345", False),  # 600,000 characters
        ("short line\n" * 54_545 + "123456", True),
        ("", False),
    ],
    ids=["mark", "late mark", "line", "long line", "file", "huge file", "empty"],
)
def test_generated_files_are_recognised_by_their_text(text: str, generated: bool) -> None:
    assert is_generated("a.py", text) is generated


def test_function_beside_a_class_does_not_belong_to_it() -> None:
    text = "class A:\n    def f(self):\n        pass\n\n\ndef g():\n    pass\n"

    assert [(one.name, one.owner) for one in functions(text)] == [("f", "A"), ("g", "")]


def test_function_without_a_name_is_left_out() -> None:
    assert functions("export default function () {\n  go();\n}\n") == ()


@pytest.mark.parametrize(
    ("path", "doc"), [("README.md", True), ("docs/conf.py", True), ("a.py", False)]
)
def test_documentation_is_recognised_by_its_path(path: str, doc: bool) -> None:
    assert is_doc(path) is doc


def test_at_most_1000_functions_of_a_file_are_found() -> None:
    text = "".join(f"def f{n}(): pass\n" for n in range(1_001))

    assert [one.name for one in functions(text)] == [f"f{n}" for n in range(1_000)]


@pytest.mark.parametrize(
    ("above", "start"),
    [
        (["@x(", "    1)"], 1),
        (["@x", "A = 1"], 3),
        (["@x(", *["    1,"] * 17, ")"], 1),
        (["@x(", *["    1,"] * 18, ")"], 21),  # further away than 19 lines
        (["@x", ""], 3),
    ],
)
def test_function_starts_at_its_decorator(above: list[str], start: int) -> None:
    (found,) = functions("\n".join([*above, "def f():", "    pass"]))

    assert (found.start, found.header) == (start, len(above) + 1)


def test_only_the_first_300_characters_of_a_line_are_read_as_a_header() -> None:
    start, end = "run(", ") {"

    assert opens_block(start + "x" * (300 - len(start + end)) + end)
    assert not opens_block(start + "x" * (301 - len(start + end)) + end)

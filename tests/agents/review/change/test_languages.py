"""Kinds of source files, and the functions in them."""

from __future__ import annotations

import pytest

from glue.agents.review.change.languages import functions, is_test, language, opens_block

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

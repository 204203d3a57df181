"""Functions of at most 50 lines, modules of at most 400, nesting of at most 4, lines of at most 140."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(p for top in ("sesa_core", "flows", "tasks", "tests") for p in (ROOT / top).rglob("*.py"))
FUNCTION_LINES, MODULE_LINES, NESTING = 50, 400, 4
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def depth(node: ast.AST) -> int:
    """Blocks around the deepest statement inside `node`; an `elif` counts as its `if`."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, depth(child) + (isinstance(child, BLOCKS) and not is_elif))
    return deepest


def test_depth_counts_blocks():
    source = "def f():\n for a in b:\n  if a:\n   pass\n  elif b:\n   with c:\n    pass\n"
    assert depth(ast.parse(source).body[0]) == 3


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_sizes(path):
    text = path.read_text()
    assert len(text.splitlines()) <= MODULE_LINES
    for function in functions(ast.parse(text)):
        where = f"{function.name}, line {function.lineno}"
        assert function.end_lineno - function.lineno + 1 <= FUNCTION_LINES, where
        assert depth(function) <= NESTING, where


@pytest.mark.parametrize("path", [p for p in SOURCES if name(p).startswith("sesa_core/") and p.read_text().strip()], ids=name)
def test_every_module_says_what_it_owns(path):
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_nothing_broad_is_caught(path):
    broad = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")))
        and not any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node))
    ]
    assert not broad

"""Who may import whom, read from the imports themselves."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(p for top in ("sesa_core", "flows", "tasks") for p in (ROOT / top).rglob("*.py"))

# A room may import rooms of its own layer only where SAME_LAYER says so, and of every layer below it.
LAYERS = [
    {"config", "types", "errors", "rng"},
    {"cards", "text"},
    {"bank", "search", "judge", "policy", "embed", "world"},
    {"rollout", "rewards", "distill"},
    {"serving", "report", "evaluation", "training"},
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
SERVICES = LAYERS[2]
BASES = {f"sesa_core.{room}.base" for room in SERVICES}  # protocols: what a service is asked for

LIBRARIES = {  # library -> where alone it may be imported
    "prefect": ("flows/", "tasks/"),
    "verl": ("sesa_core/training/",),
    "ray": ("sesa_core/training/",),
    "lancedb": ("sesa_core/bank/", "sesa_core/search/lance.py"),
    "lance": ("sesa_core/bank/",),
    "great_expectations": ("sesa_core/bank/quality.py",),
    "openai": ("sesa_core/judge/",),
    "fastapi": ("sesa_core/serving/", "sesa_core/search/server.py", "sesa_core/judge/server.py", "sesa_core/policy/server.py"),
    "mcp": ("sesa_core/serving/",),
    "typer": ("flows/",),
    "random": (),
}


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module that a file imports, also inside functions, with the line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def room(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "sesa_core" and len(parts) > 1 else None


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_library_is_imported_only_where_it_belongs(path):
    breaches = [
        f"line {line}: {module}"
        for module, line in imports(path)
        if (top := module.split(".")[0]) in LIBRARIES and not name(path).startswith(LIBRARIES[top] or ("none",))
    ]
    assert not breaches


@pytest.mark.parametrize("path", [p for p in SOURCES if name(p).startswith("sesa_core/")], ids=name)
def test_the_core_imports_inwards_only(path):
    own = room(name(path).removesuffix(".py").replace("/", "."))
    breaches = []
    for module, line in imports(path):
        if module.split(".")[0] in ("flows", "tasks"):
            breaches.append(f"line {line}: the core imports {module}")
        other = room(module)
        if other in LEVEL and own in LEVEL and LEVEL[other] > LEVEL[own]:
            breaches.append(f"line {line}: {own} imports {other}, which is further out")
    assert not breaches


@pytest.mark.parametrize("path", [p for p in SOURCES if room(name(p).replace("/", ".")) in SERVICES], ids=name)
def test_services_do_not_know_one_another(path):
    own = room(name(path).replace("/", "."))
    breaches = [
        f"line {line}: {module}"
        for module, line in imports(path)
        if room(module) in SERVICES - {own} and not any(module == base or module.startswith(base + ".") for base in BASES)
    ]
    # `from sesa_core.embed.base import Embedder` is fine: a protocol is what a service may ask for
    assert not breaches


@pytest.mark.parametrize("path", [p for p in SOURCES if name(p).startswith("tasks/")], ids=name)
def test_tasks_do_not_import_flows(path):
    breaches = [f"line {line}: {module}" for module, line in imports(path) if module in ("flows.train", "flows.cli")]
    assert not breaches


@pytest.mark.parametrize("path", [p for p in SOURCES if not name(p).startswith("sesa_core/config/")], ids=name)
def test_only_config_reads_the_environment(path):
    reads = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "putenv")
    ]
    assert not reads


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_no_draw_comes_from_a_global_generator(path):
    """numpy's and torch's global generators are forbidden; a seeded one that is named is not."""
    tree = ast.parse(path.read_text())
    allowed = {"Generator", "Philox", "SeedSequence", "BitGenerator", "PCG64"}
    draws = [
        f"line {node.lineno}: np.random.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "random"
        and isinstance(node.value.value, ast.Name)
        and node.value.value.id in ("np", "numpy")
        and node.attr not in allowed
    ]
    assert not draws

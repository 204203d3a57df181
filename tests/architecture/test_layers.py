"""Who may import whom, read from the imports themselves."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(p for top in ("sesa_core", "flows", "tasks") for p in (ROOT / top).rglob("*.py"))

# A room may import rooms of every layer below it, and of its own layer only where SAME_LAYER says so.
LAYERS = [
    {"config", "types", "errors", "rng", "means"},
    {"cards", "text"},
    {"bank", "search", "judge", "policy", "embed", "world"},
    {"rollout", "rewards", "distill"},
    {"serving", "report", "evaluation", "training"},
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
SERVICES = LAYERS[2]
BASES = {f"sesa_core.{room}.base" for room in SERVICES}  # protocols: what a service is asked for; any other may import these
SAME_LAYER = {"config": {"errors"}, "cards": {"text"}, "rollout": {"rewards"}}

LIBRARIES = {  # library -> where alone it may be imported
    "prefect": ("flows/", "tasks/"),
    "verl": ("sesa_core/training/",),
    "ray": ("sesa_core/training/",),
    "lancedb": ("sesa_core/bank/store.py", "sesa_core/search/lance.py"),
    "lance": ("sesa_core/bank/store.py",),
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


def is_base(module: str) -> bool:
    return any(module == base or module.startswith(f"{base}.") for base in BASES)


@pytest.mark.parametrize("path", [p for p in SOURCES if room(name(p).removesuffix(".py").replace("/", ".")) in LEVEL], ids=name)
def test_rooms_of_one_layer_do_not_know_one_another(path):
    """But for SAME_LAYER, and for protocols: `from sesa_core.embed.base import Embedder` is what a service may ask for."""
    own = room(name(path).removesuffix(".py").replace("/", "."))
    neighbours = LAYERS[LEVEL[own]] - {own} - SAME_LAYER.get(own, set())
    breaches = [f"line {line}: {module}" for module, line in imports(path) if room(module) in neighbours and not is_base(module)]
    assert not breaches


@pytest.mark.parametrize("path", [p for p in SOURCES if name(p).startswith("tasks/")], ids=name)
def test_tasks_do_not_import_flows(path):
    breaches = [f"line {line}: {module}" for module, line in imports(path) if module.split(".")[0] == "flows"]
    assert not breaches


@pytest.mark.parametrize("path", [p for p in SOURCES if not name(p).startswith("sesa_core/config/")], ids=name)
def test_only_config_reads_the_environment(path):
    assert not environment_reads(path.read_text())


def environment_reads(source: str) -> list[int]:
    """Lines that reach for the environment, as `os.environ` or by `from os import environ`."""
    names = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    tree = ast.parse(source)
    reads = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in names]
    return reads + [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "os" and names & {alias.name for alias in node.names}
    ]


@pytest.mark.parametrize("path", [p for p in SOURCES if name(p) != "sesa_core/training/verl/platform.py"], ids=name)
def test_no_draw_comes_from_a_global_generator(path):
    """numpy's and torch's global generators are forbidden; a seeded one that is named is not, nor is torch's inside `fork_rng`.

    verl asks a platform for `manual_seed`, so the platform may have it. `random` itself is in LIBRARIES.
    """
    assert not global_draws(path.read_text())


def global_draws(source: str) -> list[str]:
    allowed = {"Generator", "Philox", "SeedSequence", "BitGenerator", "PCG64"}
    torch_draws = {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "multinomial", "bernoulli", "normal", "manual_seed"}
    tree = ast.parse(source)
    forked = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.With) and "fork_rng" in ast.unparse(node.items[0])
        for inner in ast.walk(node)
    }
    dotted = [(ast.unparse(n), n) for n in ast.walk(tree) if isinstance(n, ast.Attribute) and id(n) not in forked]
    draws = [
        f"line {node.lineno}: {text}"
        for text, node in dotted
        if (text.startswith(("np.random.", "numpy.random.")) and node.attr not in allowed) or text in {f"torch.{d}" for d in torch_draws}
    ]
    return draws + [
        f"line {node.lineno}: from {node.module}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "numpy.random" and {a.name for a in node.names} - allowed
    ]


def test_the_readers_of_sources_see_what_they_forbid():
    assert environment_reads("import os\nx = os.environ['A']") == [2]
    assert environment_reads("from os import environ, path") == environment_reads("from os import getenv as g") == [1]
    assert environment_reads("from os import path") == []
    assert len(global_draws("import numpy as np\nnp.random.seed(0)\nnp.random.default_rng()")) == 2
    assert len(global_draws("from numpy.random import default_rng")) == 1
    assert global_draws("np.random.Generator(np.random.Philox(3))\nrng.random(4)\nfrom numpy.random import Generator") == []
    assert len(global_draws("torch.manual_seed(0)\ntorch.randn(3)")) == 2
    assert global_draws("with torch.random.fork_rng(devices=[]):\n    torch.manual_seed(0)") == []


def retrievals(path: Path) -> list[tuple[int, set[str]]]:
    """Line and keyword arguments of every call of some `.retrieve(...)`."""
    calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    return [(c.lineno, {k.arg for k in c.keywords}) for c in calls if c.func.attr == "retrieve"]


def test_every_training_call_leaves_out_cards_of_the_same_problem_and_cards_with_the_answer():
    """The fault of the original: the argument was there and nobody passed it."""
    training = {name(p): retrievals(p) for p in SOURCES if name(p).startswith(("sesa_core/training/", "sesa_core/rollout/"))}
    calls = [(path, line, given) for path, found in training.items() for line, given in found]
    assert calls, "training retrieves cards somewhere"
    assert not [(path, line) for path, line, given in calls if not {"exclude_sources", "forbidden_answers"} <= given]

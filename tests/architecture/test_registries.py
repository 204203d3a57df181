"""What settings can name is there, what is there can be named, and each room's public names are written down."""

import importlib
from pathlib import Path

import pytest

from sesa_core.config.load import describe_schema
from sesa_core.embed import EMBEDDERS
from sesa_core.embed.wordllama import WordLlamaEmbedder
from sesa_core.rewards import REWARDS
from sesa_core.rollout.profiles import PROFILES

CORE = Path(__file__).parents[2] / "sesa_core"
EXPORTS = {  # a package that offers names of its own -> those names; the others are reached by their modules
    "sesa_core.embed": {"EMBEDDERS", "Embedder", "WordLlamaEmbedder"},
    "sesa_core.rewards": {
        "REWARDS",
        "frontier_reward",
        "one_minus_pass_rate",
        "pass_rate_band",
        "proposer_reward",
        "solver_reward",
        "valid_only",
    },
    "sesa_core.training.demonstrations": {"CLEAN", "OPEN", "Demonstrations", "Habits", "Segment"},
}


@pytest.mark.parametrize(
    ("registry", "key"),
    [(REWARDS, "proposer_reward.kind"), (PROFILES, "rollout.profile"), (EMBEDDERS, "bank.embedder")],
    ids=["rewards", "profiles", "embedders"],
)
def test_a_registry_holds_exactly_what_its_setting_can_name(registry, key):
    described = {d.key: d.type for d in describe_schema()}[key]
    assert described == "one of " + ", ".join(registry)


def test_an_embedder_is_found_by_its_name():
    assert isinstance(EMBEDDERS["wordllama"](), WordLlamaEmbedder)


@pytest.mark.parametrize("package", sorted(EXPORTS))
def test_a_package_exports_exactly_what_is_written_here(package):
    module = importlib.import_module(package)
    assert set(module.__all__) == EXPORTS[package]
    assert all(hasattr(module, name) for name in module.__all__)


@pytest.mark.parametrize("path", sorted(CORE.rglob("prompts/*.txt")), ids=lambda p: p.relative_to(CORE).as_posix())
def test_every_prompt_file_is_used(path):
    """A profile reads all its texts; the judge's are named in its own code."""
    if path.parent.parent.name == "rollout":
        assert path.stem.split("_")[-1] in {"solver", "proposer", "verify", "system"}
        texts = [text for make in PROFILES.values() for text in (make().solver, make().proposer, make().verify, make().system)]
        assert path.read_text().strip() in texts
    else:
        code = "".join(p.read_text() for p in path.parent.parent.glob("*.py"))
        assert f'"{path.stem}"' in code

"""Adapters over a frozen model: what learns, what is saved, what is rolled out and what is handed on."""

from pathlib import Path

import pytest
import torch
from peft import LoraConfig, TaskType, get_peft_model
from torch.distributed.fsdp import fully_shard
from transformers import GPT2Config, GPT2LMHeadModel

import sesa_core.training.verl  # noqa: F401  (names our platform before verl is imported)

# isort: split
from verl.utils.fsdp_utils import merged_lora_context, normalize_peft_param_name

from sesa_core.errors import ConfigError
from sesa_core.policy.loading import require_adapted_layers
from sesa_core.training.host import make_host
from sesa_core.training.verl.engine import merged_weights
from sesa_core.training.verl.in_process import join_lone_group
from sesa_core.types import Role
from tests.engine_support import requests, sampled_rows, settings, weights
from tests.policies import VOCABULARY, random_model, save_policy

ADAPTED = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight", "gate_proj.weight", "up_proj.weight", "down_proj.weight")


@pytest.fixture(scope="module")
def policy_path(tmp_path_factory) -> Path:
    return save_policy(tmp_path_factory.mktemp("policy"), "qwen2")


def adapted(policy_path: Path, dtype: str = "fp32", targets="all-linear", **grpo):
    config = settings(policy_path, dtype=dtype, **grpo)
    lora = config.policy.lora.model_copy(update={"rank": 4, "targets": targets})
    return config.model_copy(update={"policy": config.policy.model_copy(update={"lora": lora})})


def changed(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


def tokens(engine) -> list[tuple[int, ...]]:
    return [completion.token_ids for completion in engine.rollout(requests())]


def actor(engine) -> torch.nn.Module:
    return engine._worker.actor.engine.module


def places(engine, learns: bool) -> dict[str, int]:
    """Where the numbers of each weight lie; `learns` asks for the adapters, else for what they leave alone."""
    named = actor(engine).named_parameters(remove_duplicate=False)
    return {name: p.to_local().data_ptr() for name, p in named if p.requires_grad is learns}


def sharded_with_adapters(model: torch.nn.Module, blocks) -> torch.nn.Module:
    """`model` with adapters that add something, wrapped as verl wraps it."""
    model = get_peft_model(model, LoraConfig(task_type=TaskType.CAUSAL_LM, r=4, lora_alpha=8, target_modules="all-linear"))
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    join_lone_group()
    for part in (*blocks, model):
        fully_shard(part)
    return model


def llama() -> torch.nn.Module:
    model = random_model("llama")
    return sharded_with_adapters(model, model.model.layers)


def gpt2() -> torch.nn.Module:
    """Its layers hold their matrices the other way round."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, initializer_range=0.2))
    return sharded_with_adapters(model, model.transformer.h)


@pytest.mark.filterwarnings("ignore:fan_in_fan_out")
@pytest.mark.parametrize("build", [llama, gpt2])
def test_merged_weights_are_those_that_verl_merges_in_place(build):
    module = build()
    before = {name: p.full_tensor().clone() for name, p in module.named_parameters()}
    with merged_lora_context(module, backup_adapters=True):
        expected = {name: t.full_tensor().clone() for name, t in normalize_peft_param_name(module.state_dict()).items()}
    assert changed({n: before[k] for n, k in normalize_peft_param_name({k: k for k in before}).items()}, expected)
    merged = {name: tensor.clone() for name, tensor in merged_weights(module)}
    assert merged.keys() == expected.keys()
    assert not changed(expected, merged)


def test_while_weights_are_merged_the_model_stays_as_it_is():
    module = llama()
    before = {name: p.full_tensor().clone() for name, p in module.named_parameters()}
    live = {p.to_local().data_ptr() for p in module.parameters()}
    for name, tensor in merged_weights(module):
        assert not changed(before, {n: p.full_tensor() for n, p in module.named_parameters()})
        assert (tensor.data_ptr() in live) is not name.endswith(ADAPTED)


def test_an_untrained_adapter_changes_nothing(policy_path, tmp_path):
    with make_host(adapted(policy_path), tmp_path) as host:
        assert not changed(random_model("qwen2").state_dict(), weights(host.engine(Role.SOLVER), tmp_path / "hf"))


@pytest.mark.parametrize("family", ["qwen2", "qwen3"], ids=["a tied head", "a head of its own"])
def test_both_roles_compute_with_the_same_frozen_weights_and_learn_in_their_own(family, tmp_path):
    with make_host(adapted(save_policy(tmp_path / "policy", family)), tmp_path) as host:
        solver, proposer = host.engine(Role.SOLVER), host.engine(Role.PROPOSER)

        def assert_shared() -> None:
            assert places(solver, learns=False) == places(proposer, learns=False)
            assert not set(places(solver, learns=True).values()) & set(places(proposer, learns=True).values())

        assert_shared()
        for engine in (solver, proposer):
            engine.update(sampled_rows(engine))
            engine.sync()
            assert_shared()
            engine.save(tmp_path / engine.role)
            engine.load(tmp_path / engine.role)
            assert_shared()
        for engine in (solver, proposer):
            engine.restart()
            assert_shared()
            engine.update(sampled_rows(engine))
            assert_shared()


def test_what_one_role_learns_the_other_does_not_see(policy_path, tmp_path):
    """Its generator says the same, and its actor finds the log-probs that the generator reports."""
    with make_host(adapted(policy_path), tmp_path) as host:
        solver, proposer = host.engine(Role.SOLVER), host.engine(Role.PROPOSER)
        before, rows = tokens(solver), sampled_rows(solver)
        proposer.update(sampled_rows(proposer))
        proposer.sync()
        assert tokens(proposer) != before
        assert tokens(solver) == before
        solver.sync()
        assert tokens(solver) == before
        assert abs(solver.update(rows)["update_kl"]) < 1e-5


def played(engine, folder: Path) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
    """Two updates with a checkpoint taken up between them, after a restart; what they report and what comes of it."""
    engine.update(sampled_rows(engine, seed=2))
    engine.restart()
    first = engine.update(sampled_rows(engine))
    engine.sync()
    engine.save(folder / "checkpoint")
    engine.load(folder / "checkpoint")
    return [first, engine.update(sampled_rows(engine, seed=1))], weights(engine, folder / "hf")


def test_a_policy_is_the_same_whether_it_shares_its_frozen_weights_or_not(policy_path, tmp_path):
    with make_host(adapted(policy_path, kl_coef=0.1), tmp_path) as host:
        alone = played(host.engine(Role.PROPOSER), tmp_path / "alone")
    with make_host(adapted(policy_path, kl_coef=0.1), tmp_path) as host:
        played(host.engine(Role.SOLVER), tmp_path / "solver")
        second = played(host.engine(Role.PROPOSER), tmp_path / "second")
    assert second[0] == alone[0]
    assert not changed(alone[1], second[1])


def test_without_adapters_nothing_is_shared(policy_path, tmp_path):
    with make_host(settings(policy_path), tmp_path) as host:
        solver, proposer = host.engine(Role.SOLVER), host.engine(Role.PROPOSER)
        assert not places(solver, learns=False)
        assert not set(places(solver, learns=True).values()) & set(places(proposer, learns=True).values())


@pytest.mark.parametrize("recompute", [False, True])
def test_only_what_has_an_adapter_learns_and_each_role_by_itself(policy_path, tmp_path, recompute):
    with make_host(adapted(policy_path, recompute=recompute), tmp_path) as host:
        solver, proposer = host.engine(Role.SOLVER), host.engine(Role.PROPOSER)
        before = weights(solver, tmp_path / "before")
        solver.update(sampled_rows(solver))
        after = weights(solver, tmp_path / "after")
        assert changed(before, after) == {name for name in before if name.endswith(ADAPTED)}
        assert not changed(before, weights(proposer, tmp_path / "proposer"))


def test_the_layers_that_get_an_adapter_can_be_named(policy_path, tmp_path):
    with make_host(adapted(policy_path, targets=("q_proj", "v_proj")), tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        before = weights(engine, tmp_path / "before")
        engine.update(sampled_rows(engine))
        assert changed(before, weights(engine, tmp_path / "after")) == {n for n in before if n.endswith(("q_proj.weight", "v_proj.weight"))}


def test_a_layer_that_the_model_does_not_have_is_refused_and_so_is_what_is_no_linear_layer(policy_path):
    require_adapted_layers(policy_path, ["q_proj", "layers.0.mlp.down_proj"])
    for wrong in ("q_prj", "proj", "norm", "lm_head"):
        with pytest.raises(ConfigError) as refusal:
            require_adapted_layers(policy_path, ["q_proj", wrong])
        assert (refusal.value.key, refusal.value.value) == ("policy.lora.targets", wrong)
        assert str(refusal.value).endswith("there are down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj")


def test_what_is_rolled_out_is_model_and_adapter_together(policy_path, tmp_path):
    """The log-probs of a second rollout are those that its update works out, so nothing is clipped."""
    with make_host(adapted(policy_path), tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        before = tokens(engine)
        engine.update(sampled_rows(engine))
        assert tokens(engine) == before
        engine.sync()
        assert tokens(engine) != before
        metrics = engine.update(sampled_rows(engine, seed=1))
    assert abs(metrics["update_kl"]) < 1e-5
    assert metrics["clip_fraction"] == 0


def test_kl_is_to_the_model_without_its_adapter(policy_path, tmp_path):
    with make_host(adapted(policy_path, kl_coef=0.1), tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        first = engine.update(sampled_rows(engine))
        engine.sync()
        second = engine.update(sampled_rows(engine, seed=1))
    assert first["kl"] == pytest.approx(0, abs=1e-6)
    assert second["kl"] > 0.01


def test_a_checkpoint_holds_the_adapter_alone_and_goes_on_exactly(policy_path, tmp_path):
    with make_host(adapted(policy_path), tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        engine.update(sampled_rows(engine))
        engine.sync()
        engine.save(tmp_path / "checkpoint")
        rows, played = sampled_rows(engine, seed=1), engine.rollout(requests())
        straight = engine.update(rows), weights(engine, tmp_path / "straight")
        engine.load(tmp_path / "checkpoint")
        assert engine.rollout(requests()) == played
        again = engine.update(rows), weights(engine, tmp_path / "again")
    assert straight[0] == again[0]
    assert not changed(straight[1], again[1])
    saved = torch.load(next((tmp_path / "checkpoint").glob("model_*.pt")), weights_only=False)
    assert all("lora_" in name for name in saved)


def test_a_restarted_policy_begins_with_the_same_adapter(policy_path, tmp_path):
    with make_host(adapted(policy_path), tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        rows = sampled_rows(engine)
        first = engine.update(rows), weights(engine, tmp_path / "first")
        engine.restart()
        second = engine.update(rows), weights(engine, tmp_path / "second")
    assert first[0] == second[0]
    assert not changed(first[1], second[1])


def test_a_bf16_policy_learns_through_its_adapter(policy_path, tmp_path):
    with make_host(adapted(policy_path, dtype="bf16"), tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        before = weights(engine, tmp_path / "before")
        metrics = engine.update(sampled_rows(engine))
        assert changed(before, weights(engine, tmp_path / "after"))
    assert metrics["grad_norm"] > 0

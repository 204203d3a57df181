"""The engine in one process: what an update does, and that a checkpoint is exact."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import sesa_core.training.verl  # noqa: F401  (names our platform before verl is imported)

# isort: split
from verl.utils import tensordict_utils as tu

from sesa_core.errors import CheckpointMismatch, EngineError
from sesa_core.policy.base import GenerationRequest, Sampling, TrainingRow
from sesa_core.training.host import WARM_START, make_host
from sesa_core.training.verl.in_process import InProcessEngine
from sesa_core.training.verl.rows import mini_batches
from sesa_core.types import Role
from tests.engine_support import ROOT, assert_same_weights, requests, sampled_rows, settings, weights
from tests.policies import VOCABULARY, random_model, save_policy

AGGREGATIONS = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]


@pytest.fixture(scope="module")
def policy_path(tmp_path_factory) -> Path:
    return save_policy(tmp_path_factory.mktemp("policy"))


def adam_by_hand(rows: list[TrainingRow], lr: float, max_norm: float) -> tuple[dict[str, torch.Tensor], float, float]:
    """One token-mean GRPO step on a plain Hugging Face model: gradient of -sum(A log p) / tokens, clipped, then AdamW's first step."""
    model = random_model().requires_grad_(True)
    tokens = sum(sum(row.response_mask) for row in rows)
    loss = torch.zeros(())
    for row in rows:
        ids = torch.tensor([row.prompt_ids + row.response_ids])
        log_probs = torch.log_softmax(model(ids).logits[0, len(row.prompt_ids) - 1 : -1], -1)
        picked = log_probs.gather(1, torch.tensor(row.response_ids)[:, None])[:, 0]
        loss = loss - (picked * row.advantage * torch.tensor(row.response_mask)).sum() / tokens
    loss.backward()
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm))
    torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0).step()
    value = -sum(row.advantage * sum(row.response_mask) for row in rows) / tokens  # at ratio 1 the surrogate is the mean advantage
    return {k: v.detach() for k, v in model.state_dict().items()}, norm, value


def test_an_update_is_the_step_worked_out_on_a_plain_model(policy_path, tmp_path):
    with make_host(settings(policy_path), tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        rows = sampled_rows(engine)
        metrics = engine.update(rows)
        expected, norm, loss = adam_by_hand(rows, lr=1e-2, max_norm=1.0)
        assert_same_weights(weights(engine, tmp_path / "hf"), expected, 1e-4)
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-3)
    assert metrics["loss"] == pytest.approx(loss, abs=1e-4)
    assert (metrics["lr"], metrics["kl"], metrics["clip_fraction"], metrics["optimizer_steps"]) == (1e-2, 0.0, 0.0, 1.0)
    assert engine.policy_version == 1


def rows_that_begin_alike() -> list[TrainingRow]:
    """Two groups of three whose prompts, and partly whose first turns, are the same; advantages of both signs."""
    rng = np.random.default_rng(3)
    rows = []
    for group, prompt in enumerate(tuple(rng.integers(1, VOCABULARY, 20).tolist()) for _ in range(2)):
        turn, told = tuple(rng.integers(1, VOCABULARY, 4).tolist()), tuple(rng.integers(1, VOCABULARY, 6).tolist())
        for sample, rest in enumerate(((7, 8), (7, 9), (11,))):
            response = (*turn, *told, *rest) if sample < 2 else (*rest, *turn)
            mask = (1,) * 4 + (0,) * 6 + (1,) * 2 if sample < 2 else (1,) * 5
            old = tuple(-3.0 * m for m in mask)
            rows.append(TrainingRow(prompt, response, mask, old, float(rng.normal()), str(group)))
    return rows


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_shared_beginnings_change_no_log_prob(tmp_path, family, temperature):
    folder, rows = save_policy(tmp_path / family, family), rows_that_begin_alike()
    config = settings(folder, micro_batch_rows=6)
    engine = InProcessEngine(config, Role.SOLVER, folder)
    (batch,) = mini_batches(rows, config.grpo, temperature, np.random.default_rng(0))
    tu.assign_non_tensor(batch, compute_loss=False, calculate_entropy=True)
    found = engine._worker.actor.infer_batch(batch)
    model = random_model(family)
    for log_probs, entropy, ids, mask in zip(*(batch_rows(x) for x in (found["log_probs"], found["entropy"])), *texts(batch), strict=True):
        first = len(ids) - len(mask)
        expected = torch.log_softmax(model(ids[None]).logits[0, first - 1 : -1] / temperature, -1)
        trained = mask.bool()
        picked = expected.gather(1, ids[first:, None])[:, 0][trained]
        torch.testing.assert_close(log_probs[first - 1 : -1][trained], picked, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(entropy[first - 1 : -1][trained], -(expected.exp() * expected).sum(-1)[trained], atol=1e-4, rtol=1e-4)


def batch_rows(nested: torch.Tensor) -> list[torch.Tensor]:
    return [row.detach() for row in nested.unbind()]


def texts(batch) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    return batch_rows(batch["input_ids"]), batch_rows(batch["response_mask"])


@pytest.mark.parametrize("recompute", [False, True])
def test_an_update_over_shared_beginnings_is_the_step_worked_out_row_by_row(policy_path, tmp_path, recompute):
    with make_host(settings(policy_path, recompute=recompute, micro_batch_rows=6), tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        assert engine._worker.actor.engine.module.is_gradient_checkpointing is recompute
        rows = [replace(row, old_log_probs=own) for row, own in zip(rows_that_begin_alike(), own_log_probs(), strict=True)]
        metrics = engine.update(rows)
        expected, norm, loss = adam_by_hand(rows, lr=1e-2, max_norm=1.0)
        assert_same_weights(weights(engine, tmp_path / "hf"), expected, 1e-4)
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-3)
    assert metrics["loss"] == pytest.approx(loss, abs=1e-4)


def own_log_probs() -> list[tuple[float, ...]]:
    """What the untrained policy itself thinks of the rows' tokens, so that the ratio of the loss is 1."""
    model, found = random_model(), []
    for row in rows_that_begin_alike():
        logits = model(torch.tensor([row.prompt_ids + row.response_ids])).logits[0, len(row.prompt_ids) - 1 : -1]
        picked = torch.log_softmax(logits, -1).gather(1, torch.tensor(row.response_ids)[:, None])[:, 0]
        found.append(tuple((picked * torch.tensor(row.response_mask)).tolist()))
    return found


def test_what_is_rolled_out_changes_at_the_sync_and_not_before(policy_path, tmp_path):
    with make_host(settings(policy_path), tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        before = engine.rollout(requests())
        engine.update(sampled_rows(engine))
        assert [c.token_ids for c in engine.rollout(requests())] == [c.token_ids for c in before]
        engine.sync()
        assert [c.token_ids for c in engine.rollout(requests())] != [c.token_ids for c in before]


def test_a_rollout_ends_at_a_text_that_the_policy_s_own_tokenizer_spells(policy_path, tmp_path):
    with make_host(settings(policy_path), tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        tokenizer = AutoTokenizer.from_pretrained(policy_path)
        whole = engine.rollout(requests(16))
        texts = [tokenizer.decode(c.token_ids[1:3]) for c in whole]
        ask = [replace(r, sampling=replace(r.sampling, stop_texts=(t or "x",))) for r, t in zip(requests(16), texts, strict=True)]
        played = zip(whole, engine.rollout(ask), texts, strict=True)
    spelled = [(free, stopped) for free, stopped, text in played if len(text) > 1 and text.isascii()]
    assert spelled, "some of them are letters"
    assert all(stopped.stop_reason == "stop" and stopped.token_ids == free.token_ids[:3] for free, stopped in spelled)


def test_the_roles_do_not_touch_one_another(policy_path, tmp_path):
    with make_host(settings(policy_path), tmp_path) as host:
        proposer, solver = host.engine(Role.PROPOSER), host.engine(Role.SOLVER)
        before = weights(proposer, tmp_path / "before")
        solver.update(sampled_rows(solver))
        assert_same_weights(weights(proposer, tmp_path / "after"), before, 0.0)
        assert (proposer.policy_version, solver.policy_version) == (0, 1)


def test_a_bf16_policy_plays_and_learns_in_bf16(policy_path, tmp_path):
    """Its log-probs are those of a bf16 model, not of an fp32 one; a rate too small for bf16 still moves the optimizer's weights."""
    ask = [GenerationRequest(r.prompt_ids, r.seed, Sampling(1, temperature=0.0)) for r in requests()]
    with make_host(settings(policy_path, dtype="bf16", optim={"lr": 1e-5}), tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        played = [c.log_probs[0] for c in engine.rollout(ask)]
        before = weights(engine, tmp_path / "before")
        metrics = engine.update(sampled_rows(engine))
        after = weights(engine, tmp_path / "after")
    for dtype, tolerance in ((torch.bfloat16, 0.02), (torch.float32, 1e-4)):
        model = AutoModelForCausalLM.from_pretrained(policy_path, dtype=dtype)
        with torch.no_grad():
            logits = [model(torch.tensor([r.prompt_ids])).logits[0, -1].float() for r in ask]
        best = torch.stack([torch.log_softmax(row, -1).max() for row in logits])
        assert (float((best - torch.tensor(played)).abs().max()) < tolerance) == (dtype is torch.bfloat16)
    assert metrics["grad_norm"] > 0
    moved = torch.cat([(after[n] - before[n]).abs().flatten() for n in before])
    assert {w.dtype for w in after.values()} == {torch.float32}
    assert 0 < float(moved.max()) < 1e-4


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_how_rows_are_cut_into_micro_batches_does_not_matter(policy_path, tmp_path, aggregation):
    results = []
    for micro in (1, 4, 10):  # 10 rows: no filler, two fillers, one micro-batch
        with make_host(settings(policy_path, micro_batch_rows=micro, loss_aggregation=aggregation), tmp_path) as host:
            engine = host.engine(Role.SOLVER)
            engine.update(sampled_rows(engine))
            results.append(weights(engine, tmp_path / f"{aggregation}-{micro}"))
    # AdamW's first step is near the gradient's sign: where that is tiny, the last bits of a sum show
    assert_same_weights(results[0], results[1], 1e-3)
    assert_same_weights(results[0], results[2], 1e-3)


def test_several_mini_batches_are_several_optimizer_steps(policy_path, tmp_path):
    with make_host(settings(policy_path, mini_batch_rows=4), tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        metrics = engine.update(sampled_rows(engine, count=10))
    assert metrics["optimizer_steps"] == 3.0  # 4 + 3 + 3 rows
    assert engine.policy_version == 1
    assert metrics["update_kl"] != 0.0


def test_the_rate_warms_up_and_stays(policy_path, tmp_path):
    with make_host(settings(policy_path, optim={"lr": 3e-3, "warmup_steps": 3}), tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        rates = [engine.update(sampled_rows(engine))["lr"] for _ in range(4)]
    assert rates == pytest.approx([1e-3, 2e-3, 3e-3, 3e-3])


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_kl_pulls_towards_the_initial_policy_and_is_told_per_token(policy_path, tmp_path, aggregation):
    with make_host(settings(policy_path, kl_coef=0.5, loss_aggregation=aggregation), tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        first = engine.update(sampled_rows(engine, seed=0))
        engine.sync()
        rows = sampled_rows(engine, seed=1)
        second = engine.update(rows)
        engine.sync()
    assert first["kl"] == pytest.approx(0.0, abs=1e-6)
    # the low-variance estimator, exp(d) - d - 1 with d = reference - current, averaged over tokens, by hand
    reference = random_model()
    terms = []
    for row in rows:
        logits = reference(torch.tensor([row.prompt_ids + row.response_ids])).logits[0, len(row.prompt_ids) - 1 : -1]
        picked = torch.log_softmax(logits, -1).gather(1, torch.tensor(row.response_ids)[:, None])[:, 0]
        d = picked - torch.tensor(row.old_log_probs)
        terms += [float(x) for x, mask in zip(torch.exp(d) - d - 1, row.response_mask, strict=True) if mask]
    assert second["kl"] == pytest.approx(np.mean(np.clip(terms, -10, 10)), rel=1e-3)
    assert second["kl"] > 0


def test_an_update_on_nothing_is_refused(policy_path, tmp_path):
    with make_host(settings(policy_path), tmp_path) as host, pytest.raises(EngineError, match="at least one"):
        host.engine(Role.SOLVER).update([])


def test_entropy_is_that_of_the_policy_that_sampled(policy_path, tmp_path):
    with make_host(settings(policy_path, entropy_coef=0.01), tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        rows = sampled_rows(engine)
        entropy = engine.update(rows)["entropy"]
    taken = [-p for row in rows for p, mask in zip(row.old_log_probs, row.response_mask, strict=True) if mask]
    assert entropy == pytest.approx(sum(taken) / len(taken))


# ---- checkpoints ----

NEXT_UPDATE = """
import sys
from pathlib import Path
from sesa_core.config.environment import quiet_libraries
quiet_libraries()
from sesa_core.training.host import make_host
from sesa_core.training.verl.in_process import InProcessEngine
from sesa_core.training.verl.rows import mini_batches
from sesa_core.types import Role
from tests.engine_support import sampled_rows, settings
policy, checkpoint, out = map(Path, sys.argv[1:])
with make_host(settings(policy, mini_batch_rows=4, kl_coef=0.1, optim={"warmup_steps": 5}), out) as host:
    engine = host.engine(Role.SOLVER)
    engine.load(checkpoint)
    engine.update(sampled_rows(engine, seed=2))
    assert engine.policy_version == 3
    engine.save_hf(out)
"""


def test_a_fresh_process_goes_on_exactly_where_the_checkpoint_stands(policy_path, tmp_path):
    shuffled = settings(policy_path, mini_batch_rows=4, kl_coef=0.1, optim={"warmup_steps": 5})
    with make_host(shuffled, tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        for seed in range(2):
            engine.update(sampled_rows(engine, seed=seed))
            engine.sync()
        engine.save(tmp_path / "checkpoint")
        engine.update(sampled_rows(engine, seed=2))
        expected = weights(engine, tmp_path / "here")
    arguments = [str(policy_path), str(tmp_path / "checkpoint"), str(tmp_path / "there")]
    subprocess.run([sys.executable, "-c", NEXT_UPDATE, *arguments], check=True, cwd=ROOT, capture_output=True, timeout=280)
    assert_same_weights(AutoModelForCausalLM.from_pretrained(tmp_path / "there").state_dict(), expected, 1e-6)


def test_loading_brings_the_generator_back_too(policy_path, tmp_path):
    with make_host(settings(policy_path), tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        engine.update(sampled_rows(engine))
        engine.sync()
        said = engine.rollout(requests())
        engine.save(tmp_path / "checkpoint")
        engine.update(sampled_rows(engine, seed=1))
        engine.sync()
        engine.load(tmp_path / "checkpoint")
        assert [c.token_ids for c in engine.rollout(requests())] == [c.token_ids for c in said]
        assert engine.policy_version == 1


def test_an_exported_policy_is_an_ordinary_hugging_face_folder(policy_path, tmp_path):
    with make_host(settings(policy_path), tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        engine.update(sampled_rows(engine))
        engine.sync()
        engine.save_hf(tmp_path / "hf")
        (request,) = requests(1)
        (completion,) = engine.rollout([request])
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
    logits = model(torch.tensor([request.prompt_ids + completion.token_ids])).logits[0, len(request.prompt_ids) - 1 : -1]
    expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0]
    assert np.allclose(completion.log_probs, expected.detach(), atol=1e-4)
    assert AutoTokenizer.from_pretrained(tmp_path / "hf").encode("a")


def test_prepare_loads_only_what_is_not_there(policy_path, tmp_path):
    with make_host(settings(policy_path), tmp_path) as host:
        assert not host.prepare(None)  # fresh engines stand at the warm start
        start = weights(host.engine(Role.SOLVER), tmp_path / "start")
        for role in Role:
            host.engine(role).update(sampled_rows(host.engine(role)))
            host.engine(role).sync()
            host.engine(role).save(tmp_path / "one" / role)
        one = {role: tmp_path / "one" / role for role in Role}
        assert not host.prepare(one)  # saved there, not moved since
        trained = weights(host.engine(Role.SOLVER), tmp_path / "trained")
        host.engine(Role.SOLVER).update(sampled_rows(host.engine(Role.SOLVER), seed=3))
        assert host.engine(Role.SOLVER).standing is None
        assert host.prepare(one)  # a segment broke off: only the solver has to go back
        assert_same_weights(weights(host.engine(Role.SOLVER), tmp_path / "back"), trained, 0.0)
        assert host.prepare(None)
        assert_same_weights(weights(host.engine(Role.SOLVER), tmp_path / "restarted"), start, 0.0)
        assert (host.engine(Role.SOLVER).standing, host.engine(Role.SOLVER).policy_version) == (WARM_START, 0)


def test_a_restarted_policy_learns_as_a_fresh_one(policy_path, tmp_path):
    with make_host(settings(policy_path, optim={"warmup_steps": 3}), tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        engine.update(sampled_rows(engine))
        once = weights(engine, tmp_path / "once")
        engine.restart()
        engine.update(sampled_rows(engine))
        assert_same_weights(weights(engine, tmp_path / "again"), once, 1e-6)


def test_a_damaged_checkpoint_is_named_and_not_loaded(policy_path, tmp_path):
    with make_host(settings(policy_path), tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        engine.save(tmp_path / "checkpoint")
        victim = next((tmp_path / "checkpoint").glob("model*"))
        content = bytearray(victim.read_bytes())
        content[len(content) // 2] ^= 1
        victim.write_bytes(content)
        with pytest.raises(CheckpointMismatch, match="checkpoint"):
            engine.load(tmp_path / "checkpoint")
        with pytest.raises(EngineError, match="holds no checkpoint"):
            engine.load(tmp_path / "nowhere")


def test_a_checkpoint_of_the_other_role_is_refused(policy_path, tmp_path):
    with make_host(settings(policy_path), tmp_path) as host:
        host.engine(Role.PROPOSER).save(tmp_path / "checkpoint")
        with pytest.raises(EngineError, match="of the proposer, not of the solver"):
            host.engine(Role.SOLVER).load(tmp_path / "checkpoint")


def test_saving_again_replaces_the_whole_folder(policy_path, tmp_path):
    with make_host(settings(policy_path), tmp_path) as host:
        engine = host.engine(Role.SOLVER)
        engine.save(tmp_path / "checkpoint")
        (tmp_path / "checkpoint" / "stray").write_text("left over")
        engine.update(sampled_rows(engine))
        engine.save(tmp_path / "checkpoint")
        engine.load(tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint" / "stray").exists()
    assert json.loads((tmp_path / "checkpoint" / "state.json").read_text())["policy_version"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint"]

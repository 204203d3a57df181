"""`sesa doctor` on a machine that has everything, and on policies that no run could play with."""

import json
import shutil

import pytest
from transformers import GPT2Config, GPT2LMHeadModel

from flows.doctor import examine
from sesa_core.config.load import load_config
from sesa_core.policy.loading import TINY
from tests.flows.conftest import sesa

CHECKS = ["python", "packages", "disk", "world", "policy", "search", "bank", "judge"]


def finding(what: str, *overrides: str):
    return next(f for f in examine(load_config(overrides=overrides)) if f.what == what)


def test_everything_that_a_run_needs_answers(runs_dir):
    done = sesa("doctor", "--json", "--set", f"runs_dir={runs_dir}")
    rows = json.loads(done.stdout)
    assert [row["what"] for row in rows] == CHECKS
    assert all(row["ok"] for row in rows), rows
    assert done.returncode == 0


def test_a_judge_that_nothing_will_ask_need_not_answer():
    nobody = "judge.base_url=http://127.0.0.1:9/v1"
    assert not finding("judge", nobody).ok and not finding("judge", nobody, "distill.enabled=false", "validation.verifier=judge").ok
    idle = finding("judge", nobody, "distill.enabled=false")
    assert (idle.ok, idle.detail) == (True, "none is asked with these settings")


@pytest.fixture
def policy(tmp_path):
    """The shipped policy, in a folder of its own to be damaged."""
    return shutil.copytree(TINY, tmp_path / "policy")


def test_a_damaged_policy_is_one_finding_and_the_checks_after_it_still_run(policy, runs_dir):
    weights = policy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    found = list(examine(load_config(overrides=[f"policy.path={policy}"], values={"runs_dir": str(runs_dir)})))
    assert [f.what for f in found] == CHECKS
    assert [f.what for f in found if not f.ok] == ["policy"]
    assert "damaged" in next(f.detail for f in found if f.what == "policy")


@pytest.mark.parametrize("content", ["{}", "{", '{"model_type": "unheard-of"}'])
def test_a_policy_whose_config_says_nothing_is_a_finding(content, policy):
    (policy / "config.json").write_text(content)
    found = finding("policy", f"policy.path={policy}")
    assert not found.ok and found.detail


@pytest.mark.parametrize(("positions", "says"), [(480, "generates"), (479, "sees 479 tokens at once; give at most that")])
def test_a_model_of_another_family_is_passed_if_a_game_has_room_in_it(positions, says, policy):
    """The preset plays within 480 tokens."""
    GPT2LMHeadModel(GPT2Config(vocab_size=3072, n_embd=8, n_layer=1, n_head=1, n_positions=positions)).save_pretrained(policy)
    found = finding("policy", f"policy.path={policy}")
    assert found.ok is (says == "generates") and says in found.detail


def test_what_a_run_would_refuse_of_a_policy_is_a_finding():
    assert finding("policy").ok
    assert "<|im_end|>" in finding("policy", "rollout.profile=qwen").detail
    assert "policy.lora.targets: 'q' is not allowed" in finding("policy", "policy.lora.rank=4", "policy.lora.targets=[q]").detail

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


def test_a_model_that_the_generator_does_not_run_is_not_passed(policy):
    GPT2LMHeadModel(GPT2Config(vocab_size=3072, n_embd=8, n_layer=1, n_head=1, n_positions=64)).save_pretrained(policy)
    found = finding("policy", f"policy.path={policy}")
    assert not found.ok
    assert "gpt2" in found.detail

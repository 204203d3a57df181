"""The recipe of the shipped warm start, cut to a few steps: what it writes, and that one seed gives one result."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sesa_core.config.models import RolloutSettings
from sesa_core.policy.generate import Generator
from sesa_core.policy.loading import load_policy, load_tokenizer, resolve_policy_path
from sesa_core.policy.tiny import SPECIAL_TOKENS, VOCABULARY
from sesa_core.rollout.loop import Seat, Table, play
from sesa_core.rollout.transcript import Transcript
from sesa_core.training.warmstart import WarmStartSettings, WarmStartTrainer, warm_start
from sesa_core.types import Role
from sesa_core.world.load import load_world
from tests.engine_support import ROOT
from tests.support import ListedSearch

SHORT = WarmStartSettings(steps=5, rows=4, tokenizer_texts=200, threads=1)


@pytest.fixture(scope="module")
def world():
    return load_world()


@pytest.fixture(scope="module")
def folder(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("warmstart")
    warm_start(folder, world, SHORT, lambda line: None)
    return folder


def test_the_folder_is_a_policy_that_a_game_can_be_played_with(folder):
    path = resolve_policy_path(str(folder))
    tokenizer = load_tokenizer(path)
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == list(range(len(SPECIAL_TOKENS)))
    assert len(tokenizer) == VOCABULARY
    transcript = Transcript(tokenizer, "tiny", 1)

    class Policy:
        policy_version = 0
        generator = Generator(load_policy(path), slots=2, max_len=64)

        def rollout(self, requests):
            return self.generator.generate(requests)

    table = Table(Policy(), transcript, ListedSearch([]), 1, RolloutSettings(profile="tiny", max_searches=1, max_context=64), seed=0)
    seats = [Seat(Role.SOLVER, "p", i, tuple(transcript.solver_messages("What is the anthem of Chad?"))) for i in range(2)]
    for trajectory in play(seats, table, ("test",)):
        assert trajectory.response_ids and len(trajectory.prompt_ids) + len(trajectory.response_ids) <= 64


def test_one_seed_gives_one_policy_and_another_seed_another(world, folder):
    shipped = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    for seed, same in ((0, True), (1, False)):
        trainer = WarmStartTrainer(world, replace(SHORT, seed=seed), lambda line: None)
        trainer.train()
        weights = trainer.model.state_dict()
        assert all(torch.equal(weights[n], shipped[n]) for n in ("model.norm.weight", "model.embed_tokens.weight")) == same


@pytest.mark.long
def test_the_command_writes_the_policy_and_says_how_to_use_it(tmp_path):
    command = [sys.executable, "-m", "flows.cli", "warmstart", "--out", str(tmp_path / "policy"), "--steps", "2"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=280)
    assert done.returncode == 0, done.stderr
    assert f"--set policy.path={tmp_path / 'policy'}" in done.stdout
    assert AutoTokenizer.from_pretrained(tmp_path / "policy").eos_token == "<eos>"
    assert (resolve_policy_path(str(tmp_path / "policy")) / "model.safetensors").is_file()

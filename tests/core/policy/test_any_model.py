"""Any Hugging Face causal LM: what transformers' own forward says, with every kind of position and of cache."""

import weakref

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    Gemma2Config,
    GPT2Config,
    GPTNeoXConfig,
    MambaConfig,
    MistralConfig,
    OPTConfig,
    Phi3Config,
)

from sesa_core.errors import EngineError
from sesa_core.policy.any_model import ForwardGenerator, generator_for
from sesa_core.policy.base import GenerationRequest, Sampling
from sesa_core.policy.generate import Generator
from tests.core.policy.test_generate import prompts, reference_log_probs, requests
from tests.policies import FAMILIES, VOCABULARY, random_model

COMMON = {"vocab_size": VOCABULARY, "eos_token_id": 0, "pad_token_id": 0, "bos_token_id": 0}
DENSE = COMMON | {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.2}
MODELS = {
    "learned positions": GPT2Config(**COMMON, n_embd=32, n_layer=2, n_head=4, n_positions=256, initializer_range=0.2),
    "positions from the mask": OPTConfig(
        **COMMON, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64, word_embed_proj_dim=32, init_std=0.2
    ),
    "positions as a bias": BloomConfig(**COMMON, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.2),
    "windows in every other layer": Gemma2Config(**DENSE, intermediate_size=64, num_key_value_heads=2, head_dim=8, sliding_window=8),
    "a window": MistralConfig(**DENSE, intermediate_size=64, num_key_value_heads=2, sliding_window=8),
    "parallel attention": GPTNeoXConfig(**DENSE, intermediate_size=64),
    "fused projections": Phi3Config(**DENSE, intermediate_size=64, num_key_value_heads=2),
    "no keys and values": MambaConfig(**COMMON, hidden_size=32, num_hidden_layers=2, state_size=8, initializer_range=0.2),
}


def model_of(name: str):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(MODELS[name]).eval().requires_grad_(False)


@pytest.mark.parametrize("name", MODELS)
def test_log_probs_are_those_of_the_model_whatever_shares_the_wave(name):
    model = model_of(name)
    batch = [GenerationRequest(text, seed, Sampling(3 + seed)) for seed, text in enumerate(prompts(12))]
    completions = ForwardGenerator(model, 5, 64).generate(batch)
    assert [len(c.token_ids) for c in completions] == [3 + seed for seed in range(12)]
    for request, completion in zip(batch, completions, strict=True):
        expected = reference_log_probs(model, request.prompt_ids, completion.token_ids)
        assert torch.allclose(torch.tensor(completion.log_probs), expected, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_both_generators_play_the_same(family):
    model = random_model(family)
    batch = requests(prompts(20), Sampling(12, temperature=0.8, top_k=40))
    fast, plain = Generator(model, 8, 64).generate(batch), ForwardGenerator(model, 8, 64).generate(batch)
    for one, other in zip(fast, plain, strict=True):
        assert one.token_ids == other.token_ids
        assert one.stop_reason == other.stop_reason
        assert np.allclose(one.log_probs, other.log_probs, atol=1e-4)


def test_each_model_gets_the_fastest_generator_that_is_right_for_it():
    assert {type(generator_for(random_model(family), 2, 32)) for family in FAMILIES} == {Generator}
    assert {type(generator_for(model_of(name), 2, 32)) for name in MODELS} == {ForwardGenerator}


def test_new_weights_are_taken_and_incomplete_ones_refused():
    model, other = model_of("a window"), model_of("a window")
    torch.nn.init.normal_(other.lm_head.weight)
    batch = requests(prompts(3), Sampling(8))
    generator, state = ForwardGenerator(model, 4, 64), {name: p.clone() for name, p in other.named_parameters()}
    generator.load_weights(state.items())
    assert generator.generate(batch) == ForwardGenerator(other, 4, 64).generate(batch)
    del state["lm_head.weight"]
    with pytest.raises(EngineError, match="lack 1 tensors, the first is lm_head.weight"):
        generator.load_weights(state.items())


@pytest.mark.parametrize("kind", [Generator, ForwardGenerator])
def test_new_weights_are_copied_one_by_one_and_what_becomes_of_them_later_does_not_matter(kind):
    other, batch = random_model(seed=1), requests(prompts(3), Sampling(8))
    expected, generator = kind(other, 4, 64).generate(batch), kind(random_model(seed=0), 4, 64)
    merged: list[weakref.ref] = []

    def stream():
        for name, tensor in other.state_dict().items():
            if not name.endswith("proj.weight"):
                yield name, tensor  # the live weight, as an actor gives those that have no adapter
                continue
            fresh = tensor.clone()
            merged.append(weakref.ref(fresh))
            yield name, fresh
            del fresh
            assert sum(kept() is not None for kept in merged) <= 1  # at most the last is still held

    generator.load_weights(stream())
    for parameter in other.parameters():
        parameter.zero_()
    assert len(merged) == 14
    assert generator.generate(batch) == expected


def test_a_full_sequence_ends_where_the_room_ends():
    (completion,) = ForwardGenerator(model_of("a window"), 1, 12).generate([GenerationRequest((1,) * 8, 0, Sampling(30))])
    assert (len(completion.token_ids), completion.stop_reason) == (4, "length")

"""The batched generator: what comes out is what the model and the request say, whatever else is in the batch."""

import numpy as np
import pytest
import torch

from sesa_core.errors import ConfigError, EngineError
from sesa_core.policy.base import GenerationRequest, Sampling
from sesa_core.policy.generate import Generator
from sesa_core.policy.loading import load_policy, load_tokenizer, resolve_policy_path
from sesa_core.policy.sampling import draw
from tests.policies import FAMILIES, VOCABULARY, random_model, save_policy


def prompts(count: int, seed: int = 0, shortest: int = 5, longest: int = 30) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    return [tuple(rng.integers(1, VOCABULARY, int(rng.integers(shortest, longest + 1))).tolist()) for _ in range(count)]


def requests(texts: list[tuple[int, ...]], sampling: Sampling) -> list[GenerationRequest]:
    return [GenerationRequest(text, seed, sampling) for seed, text in enumerate(texts)]


def reference_log_probs(model, prompt: tuple[int, ...], tokens: tuple[int, ...], temperature: float = 1.0) -> torch.Tensor:
    """Log-probs of `tokens` after `prompt` from one plain forward pass of the Hugging Face model."""
    logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1] / temperature
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(tokens)[:, None])[:, 0]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_log_probs_are_those_of_the_model(family):
    model = random_model(family)
    batch = requests(prompts(12), Sampling(20))
    for request, completion in zip(batch, Generator(model, 16, 64).generate(batch), strict=True):
        expected = reference_log_probs(model, request.prompt_ids, completion.token_ids)
        assert torch.allclose(torch.tensor(completion.log_probs), expected, atol=1e-4)


def test_log_probs_are_those_of_the_distribution_at_the_temperature():
    model = random_model()
    (request,) = requests(prompts(1), Sampling(12, temperature=0.5, top_k=5, top_p=0.9))
    (completion,) = Generator(model, 1, 64).generate([request])
    expected = reference_log_probs(model, request.prompt_ids, completion.token_ids, temperature=0.5)
    assert torch.allclose(torch.tensor(completion.log_probs), expected, atol=1e-4)


def test_a_sequence_does_not_depend_on_its_batch_mates():
    model, batch = random_model(), requests(prompts(64), Sampling(24))
    together = Generator(model, 64, 64).generate(batch)
    for request, completion in zip(batch, together, strict=True):
        (alone,) = Generator(model, 1, 64).generate([request])
        assert alone.token_ids == completion.token_ids
        assert np.allclose(alone.log_probs, completion.log_probs, atol=1e-4)


def test_the_seed_alone_tells_group_mates_apart():
    (prompt,) = prompts(1)
    model = random_model()
    same, again, other = Generator(model, 3, 64).generate([GenerationRequest(prompt, seed, Sampling(20)) for seed in (1, 1, 2)])
    assert same.token_ids == again.token_ids
    assert same.token_ids != other.token_ids


def test_more_requests_than_slots_wait_their_turn_and_lose_nothing():
    model, batch = random_model(), requests(prompts(40), Sampling(15))
    few, many = Generator(model, 3, 64).generate(batch), Generator(model, 40, 64).generate(batch)
    assert [c.token_ids for c in few] == [c.token_ids for c in many]


def test_sequences_of_one_batch_end_at_different_times():
    batch = [GenerationRequest(text, 7, Sampling(room)) for text, room in zip(prompts(6), (1, 20, 3, 11, 2, 7), strict=True)]
    assert [len(c.token_ids) for c in Generator(random_model(), 4, 64).generate(batch)] == [1, 20, 3, 11, 2, 7]


def test_group_mates_share_their_prompt():
    (prompt,) = prompts(1, shortest=30)
    generator = Generator(random_model(), 8, 64)
    generator.generate([GenerationRequest(prompt, seed, Sampling(1)) for seed in range(8)])
    assert generator.tokens_run == 30 + 7  # the whole prompt once, then its last token for each of the other seven
    assert generator.tokens_reused == 7 * 29


def test_a_next_turn_pays_only_for_its_new_tokens_and_changes_nothing():
    model = random_model()
    first = requests(prompts(6), Sampling(8))
    generator = Generator(model, 6, 128)
    said = generator.generate(first)
    second = [
        GenerationRequest(r.prompt_ids + c.token_ids + (5, 6, 7), 100 + r.seed, Sampling(8)) for r, c in zip(first, said, strict=True)
    ]
    before = generator.tokens_run
    continued = generator.generate(second)
    assert generator.tokens_run - before == 6 * (4 + 7)  # a turn's last token and three new ones, then seven of eight drawn ones
    fresh = Generator(model, 6, 128).generate(second)
    assert [c.token_ids for c in continued] == [c.token_ids for c in fresh]


def test_a_stop_token_ends_the_sequence_and_is_part_of_it():
    model = random_model()
    (request,) = requests(prompts(1), Sampling(30))
    (free,) = Generator(model, 1, 64).generate([request])
    stop = free.token_ids[4]
    (stopped,) = Generator(model, 1, 64).generate(
        [GenerationRequest(request.prompt_ids, request.seed, Sampling(30, stop_ids=frozenset({stop})))]
    )
    cut = free.token_ids.index(stop) + 1
    assert (stopped.token_ids, stopped.stop_reason) == (free.token_ids[:cut], "stop")
    assert free.stop_reason == "length"


def test_a_full_slot_ends_the_sequence():
    (completion,) = Generator(random_model(), 1, 16).generate([GenerationRequest(tuple(range(1, 11)), 0, Sampling(30))])
    assert (len(completion.token_ids), completion.stop_reason) == (6, "length")


@pytest.mark.parametrize("size", [0, 16, 40])
def test_a_prompt_without_room_is_refused(size):
    with pytest.raises(EngineError, match=f"prompt of {size} tokens"):
        Generator(random_model(), 1, 16).generate([GenerationRequest(tuple(range(1, size + 1)), 0, Sampling(4))])


def test_a_refused_prompt_leaves_the_generator_usable():
    model, batch = random_model(), requests(prompts(3), Sampling(5))
    generator = Generator(model, 2, 64)
    with pytest.raises(EngineError):
        generator.generate([*batch, GenerationRequest((), 0, Sampling(5))])
    assert generator.generate(batch) == Generator(model, 2, 64).generate(batch)


def test_new_weights_change_what_is_said_and_old_ones_bring_it_back():
    model, other, batch = random_model(seed=0), random_model(seed=1), requests(prompts(4), Sampling(12))
    generator = Generator(model, 4, 64)
    before = generator.generate(batch)
    generator.load_weights(other.state_dict().items())
    assert generator.generate(batch) == Generator(other, 4, 64).generate(batch) != before
    generator.load_weights(model.state_dict().items())
    assert generator.generate(batch) == before


@pytest.mark.parametrize("name", ["model.layers.1.mlp.up_proj.weight", "model.layers.1.self_attn.k_proj.bias"])
def test_incomplete_weights_are_refused_by_name(name):
    state = dict(random_model("qwen2").state_dict())
    del state[name]
    with pytest.raises(EngineError, match=f"lack 1 tensors, the first is {name}"):
        Generator(random_model("qwen2"), 1, 16).load_weights(state.items())


def test_greedy_takes_the_most_likely_token_each_time():
    model = random_model()
    (request,) = requests(prompts(1), Sampling(10, temperature=0.0))
    (completion,) = Generator(model, 1, 64).generate([request])
    text = request.prompt_ids
    for token in completion.token_ids:
        assert token == int(model(torch.tensor([text])).logits[0, -1].argmax())
        text += (token,)


# One row of four tokens with probabilities 0.1, 0.4, 0.2, 0.3.
ROW = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()


def drawn(uniform: float, **cuts) -> int:
    (token,), _ = draw(ROW, [Sampling(1, **cuts)], [uniform])
    return token


def test_a_uniform_picks_the_token_whose_share_of_the_line_it_falls_on():
    # shares end at 0.1, 0.5, 0.7, 1.0
    assert [drawn(u) for u in (0.0, 0.0999, 0.1001, 0.4999, 0.5001, 0.6999, 0.7001, 0.999999)] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_top_k_keeps_the_k_likeliest():
    # k = 2 keeps 1 (0.4) and 3 (0.3): of 0.7, token 1 holds the first 4/7 = 0.571
    assert [drawn(u, top_k=2) for u in (0.0, 0.570, 0.572, 0.999)] == [1, 1, 3, 3]
    assert {drawn(u, top_k=1) for u in (0.0, 0.5, 0.999)} == {1}


def test_top_p_keeps_the_smallest_set_that_reaches_p():
    # p = 0.6: 0.4 is not enough, 0.4 + 0.3 is; p = 0.4 is reached by token 1 alone
    assert [drawn(u, top_p=0.6) for u in (0.0, 0.570, 0.572, 0.999)] == [1, 1, 3, 3]
    assert {drawn(u, top_p=0.39) for u in (0.0, 0.5, 0.999)} == {1}
    # p = 0.71 takes token 2 in as well: shares of 0.9 end at 0.444 (1), 0.667 (2), 1 (3)
    assert [drawn(u, top_p=0.71) for u in (0.0, 0.443, 0.446, 0.665, 0.668, 0.999)] == [1, 1, 2, 2, 3, 3]


def test_top_p_counts_within_what_top_k_left():
    # k = 2 leaves 4/7 and 3/7: p = 0.5 is reached by token 1 alone
    assert {drawn(u, top_k=2, top_p=0.5) for u in (0.0, 0.5, 0.999)} == {1}


def test_cuts_of_one_row_leave_the_others_alone():
    tokens, log_probs = draw(ROW.repeat(3, 1), [Sampling(1), Sampling(1, top_k=1), Sampling(1)], [0.05, 0.05, 0.95])
    assert tokens == [0, 1, 3]
    assert log_probs == pytest.approx([np.log(0.1), np.log(0.4), np.log(0.3)], abs=1e-6)


def test_frequencies_follow_the_distribution():
    uniforms = ((np.arange(10_000) + 0.5) / 10_000).tolist()
    tokens, _ = draw(ROW.repeat(10_000, 1), [Sampling(1)] * 10_000, uniforms)
    assert np.abs(np.bincount(tokens, minlength=4) / 10_000 - np.array([0.1, 0.4, 0.2, 0.3])).max() < 2e-4


def test_a_policy_loads_from_its_folder(tmp_path):
    folder = save_policy(tmp_path / "policy")
    assert resolve_policy_path(str(folder)) == folder
    model, tokenizer = load_policy(folder), load_tokenizer(folder)
    assert not any(p.requires_grad for p in model.parameters())
    assert tokenizer.decode(tokenizer.encode("a b")) == "a b"


@pytest.mark.parametrize("name", ["no such folder", "/nowhere/at/all", ""])
def test_a_policy_that_is_nowhere_is_a_persons_mistake(name):
    with pytest.raises(ConfigError, match=r"policy\.path"):
        resolve_policy_path(name)


def test_a_folder_without_a_model_is_a_persons_mistake(tmp_path):
    with pytest.raises(ConfigError, match=r"config\.json"):
        resolve_policy_path(str(tmp_path))

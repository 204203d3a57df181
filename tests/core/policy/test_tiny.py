"""The tiny policy's folder: vocabulary, template and weights as any Hugging Face program loads them."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sesa_core.policy.tiny import MAX_POSITIONS, SHIPPED, SPECIAL_TOKENS, encode_segments, new_model, save_policy, stop_ids, train_tokenizer
from sesa_core.world.load import load_world
from sesa_core.world.schema import RELATIONS, SECTIONS

WORLD = load_world()


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(SHIPPED)


def test_tags_are_single_tokens_with_fixed_ids(tokenizer):
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == list(range(len(SPECIAL_TOKENS)))
    assert stop_ids(tokenizer) == {1, 3, 7, 9}
    assert tokenizer.eos_token_id == 1
    assert tokenizer.pad_token_id == 0


def test_the_template_writes_each_message_and_a_line_break(tokenizer):
    messages = [{"role": "system", "content": '[S1] anthem: search "{country} culture"'}, {"role": "user", "content": "Question: Q?"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == '[S1] anthem: search "{country} culture"\nQuestion: Q?\n'


def test_a_name_is_the_same_tokens_after_a_tag_and_inside_a_sentence(tokenizer):
    for name in ("Chad", "N'Djamena", "Marie Curie", "Sao Tome and Principe"):
        alone = tokenizer.encode(name, add_special_tokens=False)
        tagged = tokenizer.encode(f"<search>{name}</search>", add_special_tokens=False)
        inside = tokenizer.encode(f"the capital of {name}", add_special_tokens=False)
        assert tagged[1:-1] == alone == inside[-len(alone) :]


def test_text_survives_encoding(tokenizer):
    for document in WORLD.documents[::200]:
        text = f"<information>{document.title}. {document.text}</information>"
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids).replace("<information> ", "<information>") == text


def test_section_names_and_relation_labels_are_short(tokenizer):
    lengths = [len(tokenizer.encode(x, add_special_tokens=False)) for x in (*SECTIONS, *RELATIONS)]
    assert max(lengths) <= 3


def test_the_shipped_model_is_a_small_llama_with_tied_embeddings():
    model = AutoModelForCausalLM.from_pretrained(SHIPPED)
    assert model.config.model_type == "llama"
    assert model.config.max_position_embeddings == MAX_POSITIONS
    assert 1_000_000 < sum(p.numel() for p in model.parameters()) < 1_500_000
    assert model.get_input_embeddings().weight.data_ptr() == model.get_output_embeddings().weight.data_ptr()
    assert set(model.generation_config.eos_token_id) == {1, 3, 7, 9}
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert sum(f.stat().st_size for f in SHIPPED.iterdir()) < 8_000_000


def test_only_the_models_own_segments_are_masked_in(tokenizer):
    segments = [("prompt", "Question: x\n"), ("model", "<search>Chad</search>"), ("environment", "<information>Chad.</information>")]
    (ids, mask), (short, _) = encode_segments(tokenizer, [segments, segments[:1]])
    own = tokenizer.encode("<search>Chad</search>", add_special_tokens=False)
    assert [i for i, m in zip(ids, mask, strict=True) if m] == own
    assert ids[: len(short)] == short


def test_a_policy_saved_is_the_policy_loaded(tmp_path):
    small = train_tokenizer(["Chad culture. anthem: La Tchadienne."] * 3, vocabulary=300)
    torch.manual_seed(0)
    model = new_model(len(small), hidden=32, layers=1, heads=2)
    save_policy(tmp_path, model, small)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = torch.tensor([AutoTokenizer.from_pretrained(tmp_path).encode("Chad culture", add_special_tokens=False)])
    with torch.no_grad():
        assert torch.equal(model(ids).logits, again(ids).logits)

"""Small random policies for tests: a real Llama, Qwen2 or Qwen3 with a tokenizer, saved as a Hugging Face folder."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCABULARY = 300
FAMILIES = {
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 16, "tie_word_embeddings": False}),
}


def random_model(family: str = "llama", seed: int = 0):
    """Two layers, hidden size 32, four heads in two groups; weights large enough that distributions are far from flat."""
    config_class, model_class, extra = FAMILIES[family]
    shape = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    shape |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.2}
    torch.manual_seed(seed)
    model = model_class(
        config_class(**shape | {"tie_word_embeddings": True, "eos_token_id": 0, "pad_token_id": 0, "bos_token_id": None} | extra)
    )
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.2)  # biases start at 0, where a forgotten one would not show
    return model.eval().requires_grad_(False)


def save_policy(folder: Path, family: str = "llama", seed: int = 0) -> Path:
    """A folder with weights, config and a byte-level tokenizer."""
    random_model(family, seed).save_pretrained(folder)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        ["a b"], trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<|end|>"], initial_alphabet=alphabet)
    )
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>").save_pretrained(folder)
    return folder

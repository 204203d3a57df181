"""Small real tokenizers of each family of policies: the family's chat tokens and template, the tags whole or split."""

from functools import cache

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HEADERS = (
    "<|begin_of_text|>{% for m in messages %}"
    "<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n{{ m['content'] }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
PLAIN = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
FAMILIES = {  # profile -> chat tokens, end of sequence, template
    "tiny": (["<s>", "[INST]"], "<|end|>", PLAIN),
    "default": (["<s>", "[INST]"], "<|end|>", PLAIN),
    "r-search": (["<s>", "[INST]"], "<|end|>", PLAIN),
    "qwen": (["<|im_start|>", "<|im_end|>"], "<|endoftext|>", CHATML),
    "llama3": (
        ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>"],
        "<|end_of_text|>",
        HEADERS,
    ),
}
TAGS = [f"<{slash}{name}>" for name in ("search", "information", "observation", "answer", "question", "tool_call") for slash in ("", "/")]
CORPUS = [
    "</search>\n\n<information>Doc 1",
    "<answer>a</answer><|",
    "</tool_call>\n",
    '"arguments": {"query": "capital of Chad"}',
    "</question>.",
]


@cache
def family_tokenizer(profile: str, whole: bool = True, fold: bool = False) -> PreTrainedTokenizerFast:
    """Byte-level BPE whose merges run over the ends of tags. `whole`: each tag is a token; `fold`: text is folded by NFKC first,
    and what it then spells counts as a token."""
    special, eos, template = FAMILIES[profile]
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFKC() if fold else normalizers.NFC()
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe.train_from_iterator(CORPUS * 5, trainers.BpeTrainer(vocab_size=340, initial_alphabet=alphabet, show_progress=False))
    bpe.add_special_tokens([AddedToken(token, special=True, normalized=fold) for token in [eos, *special]])
    if whole:
        bpe.add_tokens([AddedToken(tag, special=False, normalized=fold) for tag in TAGS])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token=eos, pad_token=eos)
    tokenizer.chat_template = template
    return tokenizer


def sentencepiece_tokenizer() -> PreTrainedTokenizerFast:
    """Letters of ASCII, blanks by their stand-in, all else byte by byte, as SentencePiece vocabularies have it."""
    pieces = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *map(chr, range(0x21, 0x7F)), "\u2581s", "</"]
    merges = [("\u2581", "s"), ("<", "/")]
    bpe = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges, unk_token="<unk>", byte_fallback=True))
    bpe.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    bpe.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=bpe, unk_token="<unk>", eos_token="</s>", pad_token="</s>")

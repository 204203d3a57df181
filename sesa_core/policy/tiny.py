"""The tiny policy of the embedded world: tokenizer, model and chat template, all written to one Hugging Face folder.

The vocabulary is byte-level BPE with `add_prefix_space`, so a name is the same tokens after a tag as inside a sentence:
that is what makes it copyable. Tags are special tokens. Every segment (prompt, model turn, environment text) is tokenised on
its own and never encoded again.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SHIPPED = Path(__file__).parent / "files" / "tiny"

PAD, EOS = "<pad>", "<eos>"
TAGS = (
    "<search>", "</search>", "<information>", "</information>", "<answer>", "</answer>", "<question>", "</question>",
)  # fmt: skip
SPECIAL_TOKENS = (PAD, EOS, *TAGS)
STOP_TOKENS = (EOS, "</search>", "</answer>", "</question>")
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{{ '\\n' }}{% endfor %}"
MAX_POSITIONS = 512
VOCABULARY = 3072


def train_tokenizer(texts: Iterable[str], vocabulary: int = VOCABULARY) -> PreTrainedTokenizerFast:
    """Byte-level BPE over `texts`; ids 0 to 9 are the special tokens in the order of SPECIAL_TOKENS."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        eos_token=EOS,
        additional_special_tokens=list(TAGS),
        model_max_length=MAX_POSITIONS,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def stop_ids(tokenizer: PreTrainedTokenizerFast) -> frozenset[int]:
    """Ids that end an assistant turn."""
    return frozenset(tokenizer.convert_tokens_to_ids(list(STOP_TOKENS)))


def new_model(vocabulary: int = VOCABULARY, hidden: int = 128, layers: int = 4, heads: int = 4) -> LlamaForCausalLM:
    """A fresh Llama of about 1.25 M parameters with tied embeddings; weights come from torch's global generator."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=True,
        initializer_range=0.04,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
    )
    return LlamaForCausalLM(config)


def encode_segments(
    tokenizer: PreTrainedTokenizerFast, transcripts: Sequence[Sequence[tuple[str, str]]]
) -> list[tuple[list[int], list[bool]]]:
    """For each transcript of (role, text) segments: token ids (T,) and a mask (T,), True on what the model itself writes
    (role "model"). All segments go to the tokenizer in one call, each encoded on its own."""
    encoded = iter(tokenizer([text for segments in transcripts for _, text in segments], add_special_tokens=False)["input_ids"])
    out = []
    for segments in transcripts:
        ids: list[int] = []
        mask: list[bool] = []
        for role, _ in segments:
            tokens = next(encoded)
            ids += tokens
            mask += [role == "model"] * len(tokens)
        out.append((ids, mask))
    return out


def save_policy(folder: Path, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """Weights (float32 safetensors), configs, tokenizer and chat template, loadable by any Hugging Face program."""
    folder.mkdir(parents=True, exist_ok=True)
    model.generation_config = GenerationConfig(
        eos_token_id=sorted(stop_ids(tokenizer)), pad_token_id=tokenizer.pad_token_id, max_length=MAX_POSITIONS, do_sample=True
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)

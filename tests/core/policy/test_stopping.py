"""Turns that end at a text: found in what was sampled, however the tokens cut it."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sesa_core.errors import EngineError
from sesa_core.policy.base import GenerationRequest, Sampling
from sesa_core.policy.generate import Generator
from sesa_core.policy.loading import TINY, load_tokenizer
from sesa_core.policy.stopping import StopTexts, token_pieces
from tests.families import family_tokenizer, sentencepiece_tokenizer
from tests.policies import VOCABULARY, random_model, save_policy

TAGS = ("</search>", "</answer>")


@pytest.mark.parametrize(
    ("pieces", "ends"),
    [
        ([b"</search>"], 0),
        ([b"x</search>\n\n"], 0),
        ([b"</", b"search", b">"], 2),
        ([b"</", b"search", b"><"], 2),
        ([*(bytes([c]) for c in b"</answer>")], 8),
        ([b"\xc3", b"\xa9</sear", b"ch>"], 2),
        ([b"\xf0\x9f", b"\x99\x82", b"</search", b">"], 3),
        ([b"</search", b"", b">"], 2),
        ([b"</sea", b"</search>"], 1),
        ([b"a" * 100 + b"</answer", b">"], 1),
        ([b"</search", b" >"], None),
        ([b"</sea", b"\xa9", b"rch>"], None),
        ([b"</answ", b"</", b"er>"], None),
        ([b"search>"], None),
    ],
)
def test_the_piece_that_completes_a_text_ends_the_turn(pieces, ends):
    watch = StopTexts(TAGS)
    assert next((i for i, piece in enumerate(pieces) if watch.completed_by(piece)), None) == ends


@given(st.lists(st.sampled_from([b"<", b"/", b"search", b">", b"</", b"</sea", b"rch>\n", b"answer", b"\xc3", b""]), max_size=12))
def test_the_tail_alone_finds_what_the_whole_text_holds(pieces):
    watch = StopTexts(TAGS)
    found = next((i for i, piece in enumerate(pieces) if watch.completed_by(piece)), None)
    texts = [b"".join(pieces[: i + 1]) for i in range(len(pieces))]
    assert found == next((i for i, text in enumerate(texts) if any(tag.encode() in text for tag in TAGS)), None)


ODD = ["</search>\n\n", "a  b é漢🙂", "\x00\t\r\n\x7f\xad\xa0", "<|im_end|><|eot_id|></answer>"]
TOKENIZERS = {
    "byte level": family_tokenizer("qwen", whole=False),
    "byte level with tags": family_tokenizer("llama3"),
    "sentencepiece": sentencepiece_tokenizer(),
}


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=st.one_of(st.text(), st.sampled_from(ODD)))
def test_the_pieces_of_a_text_are_its_bytes(name, text):
    tokenizer, text = TOKENIZERS[name], unicodedata.normalize("NFC", text.replace("\u2581", ""))
    pieces = token_pieces(tokenizer)
    assert b"".join(pieces[i] for i in tokenizer.encode(text, add_special_tokens=False)) == text.encode()


def test_the_shipped_policy_s_tokens_have_pieces():
    tokenizer = load_tokenizer(TINY)
    pieces = token_pieces(tokenizer)
    assert len(pieces) == len(tokenizer) and all(pieces)
    assert b"".join(pieces[i] for i in tokenizer.encode("<search>Chad é</search>")) == b"<search> Chad \xc3\xa9</search>"


@pytest.fixture(scope="module")
def pieces(tmp_path_factory) -> list[bytes]:
    return token_pieces(load_tokenizer(save_policy(tmp_path_factory.mktemp("policy"))))


def test_a_generated_turn_ends_with_the_token_that_completes_a_stop_text(pieces):
    """Each sequence's own letters, two tokens long, are its stop text: it ends where they first stand, and changes nothing before."""
    prompts = [(3 + seed, 40 + seed, 90) for seed in range(12)]
    free = Generator(random_model(), 8, 64).generate([GenerationRequest(p, s, Sampling(40)) for s, p in enumerate(prompts)])
    letters = [[(pieces[i] if i < len(pieces) else b"") for i in c.token_ids] for c in free]
    texts = [next((b"".join(row[k : k + 2]) for k in range(10, 30) if b"".join(row[k : k + 2]).isascii()), b"") for row in letters]
    assert sum(len(text) >= 2 for text in texts) >= 6, "random tokens spell enough to stop at"
    requests = [
        GenerationRequest(p, s, Sampling(40, stop_texts=("</nowhere>", text.decode()) if text else ()))
        for s, (p, text) in enumerate(zip(prompts, texts, strict=True))
    ]
    for whole, stopped, row, text in zip(free, Generator(random_model(), 8, 64, pieces).generate(requests), letters, texts, strict=True):
        length = next(n for n in range(1, 41) if text in b"".join(row[:n])) if text else 40
        assert stopped.token_ids == whole.token_ids[:length]
        assert stopped.log_probs == pytest.approx(whole.log_probs[:length], abs=1e-4)
        assert stopped.stop_reason == ("stop" if text else "length")


def test_the_prompt_does_not_end_the_turn_that_follows_it(pieces):
    tag = [pieces.index(bytes([c])) for c in b"</answer>"]
    request = GenerationRequest(tuple(tag), 1, Sampling(5, stop_texts=("</answer>",)))
    (completion,) = Generator(random_model(), 1, 64, pieces).generate([request])
    assert (len(completion.token_ids), completion.stop_reason) == (5, "length")


def test_a_token_that_the_tokenizer_does_not_have_stands_for_nothing(pieces):
    """Models often have more rows than their tokenizer has tokens; here the generator knows the texts of none but the first few."""
    request = GenerationRequest((3, 4, 5), 1, Sampling(20, stop_texts=("</answer>",)))
    (few,) = Generator(random_model(), 1, 64, pieces[:2]).generate([request])
    assert len(few.token_ids) == 20 and max(few.token_ids) < VOCABULARY


def test_stop_texts_without_the_texts_of_the_tokens_are_refused():
    request = GenerationRequest((1, 2), 0, Sampling(5, stop_texts=("</answer>",)))
    with pytest.raises(EngineError, match="stop texts"):
        Generator(random_model(), 1, 64).generate([request])

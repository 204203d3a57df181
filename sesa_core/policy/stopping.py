"""Ending a turn at a text: many tokenizers write a tag in several tokens, or its last letter together with what follows.

Invariant: a text is found in the bytes that the sampled tokens stand for, each token counted once, so letters that are split
over tokens can neither hide it nor fake it. Edge case: a token without a text of its own stands for nothing.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


class StopTexts:
    """Watches one sequence, token by token, for any of `texts`."""

    def __init__(self, texts: Iterable[str]) -> None:
        wanted = [text.encode() for text in texts]
        self._wanted = re.compile(b"|".join(map(re.escape, wanted)))
        self._reach = max(map(len, wanted)) - 1  # bytes of the past that a text may still begin in
        self._tail = b""

    def completed_by(self, piece: bytes) -> bool:
        """Whether `piece`, the bytes of the next token, completes one of the texts."""
        seen = self._tail + piece
        self._tail = seen[max(0, len(seen) - self._reach) :]
        return self._wanted.search(seen) is not None


def token_pieces(tokenizer: "PreTrainedTokenizerBase") -> list[bytes]:
    """The bytes that each token id stands for, at index id, empty where there is no such token; of a tokenizer that is not one
    of Hugging Face's fast ones nothing is known."""
    if not tokenizer.is_fast:
        return []
    vocabulary = tokenizer.get_vocab()
    pieces = [b""] * (max(vocabulary.values()) + 1)
    decoder = tokenizer.backend_tokenizer.decoder
    byte_level = decoder is not None and b'"ByteLevel"' in decoder.__getstate__()
    letters = _byte_letters() if byte_level else {}
    for token, index in vocabulary.items():
        pieces[index] = b"".join(letters.get(c) or c.encode() for c in token) if byte_level else _spelled(token)
    for index, token in tokenizer.added_tokens_decoder.items():
        pieces[index] = token.content.encode()
    return pieces


def _byte_letters() -> dict[str, bytes]:
    """Byte-level BPE writes each byte as one visible letter: itself where Latin-1 shows it, else the next free one from U+0100."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): bytes([byte]) for byte in shown} | {chr(0x100 + i): bytes([byte]) for i, byte in enumerate(hidden)}


def _spelled(token: str) -> bytes:
    """Of a SentencePiece vocabulary: a lone byte by its number, blanks by their stand-in."""
    byte = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace("\u2581", " ").encode()

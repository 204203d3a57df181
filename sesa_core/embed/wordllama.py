"""The embedded default: static word vectors that ship in the `wordllama` wheel. No torch, no hub, 0.1 s to load.

`floor` and `dedup_threshold` belong to these vectors and to `cards.lesson.embedding_text`. Measured on one card for each of 27
relations and 3 kinds of entity of the embedded world, in two wordings (the built-in judge's and one written by hand), with 8
templated questions of 1 to 3 hops per card (240 questions; the two wordings differ by at most .05):

- question against the card of the relation it asks for: lowest .28, lowest tenth .39, median .50; against the card of the kind
  of entity it names: median .49 to .53;
- question against cards of relations that it does not mention: median .10, highest tenth .20, highest hundredth .37;
- at a floor of .32, 99 % of relation questions and 88 to 92 % of kind questions find their card, 1.8 % of the other cards pass
  (0.45 of 27 per question); the right card is among the first three for 98 to 100 %;
- two cards of one relation in other words: lowest .86, median .93; cards of two relations in one sentence frame: at most .65,
  of two near relations ("top export", "export partner") .75. Hence .80, where the lexical guard of `cards.lesson` decides.

Embedding the key distinction as well made no question's card rank better and let a quarter more of the others pass.

Edge case: a text of which no token is known gets the zero vector from the library; it is returned as the first unit vector,
so that every row has unit length.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np


class WordLlamaEmbedder:
    """256 dimensions. One object may be shared by threads; a pickled copy loads its own vectors."""

    name: ClassVar[str] = "wordllama-0.4.0-l2-supercat-256"
    dimension: ClassVar[int] = 256
    floor: ClassVar[float] = 0.32
    dedup_threshold: ClassVar[float] = 0.80

    def __init__(self) -> None:
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        import wordllama  # 0.7 s: only who embeds pays for it

        root.handlers[:] = handlers  # its import switches on a log of everything that any library has to say
        root.setLevel(level)

        # the library looks for its tokenizer outside its own folder and would download it, unless told where it is
        folder = Path(wordllama.__file__).parent
        self._model = wordllama.WordLlama.load(cache_dir=folder, dim=self.dimension, disable_download=True)

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return (WordLlamaEmbedder, ())

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        if not texts:
            return np.zeros((0, self.dimension), np.float32)
        vectors = np.asarray(self._model.embed(list(texts), norm=False), dtype=np.float32)  # (N, D)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
        vectors[norms[:, 0] == 0, 0] = 1.0
        return vectors

    def embed_questions(self, texts: Sequence[str]) -> np.ndarray:
        """(N, 256) float32, unit length."""
        return self._embed(texts)

    def embed_cards(self, texts: Sequence[str]) -> np.ndarray:
        """(N, 256) float32, unit length."""
        return self._embed(texts)

"""The two embedders that the benchmarks run with: our static one, and one that costs what the original's costs."""

from collections.abc import Sequence

import numpy as np
import torch
from transformers import BertConfig, BertModel

from sesa_core.embed.wordllama import WordLlamaEmbedder


class TransformerCost(WordLlamaEmbedder):
    """The static vectors at the price of e5-base-v2: a transformer of its size (12 layers of 768) reads each text first.

    Its weights are random, since only its time counts. One token per four characters, at most 512.
    """

    batch = 32

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self._transformer = BertModel(BertConfig()).eval()

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        with torch.inference_mode():
            for i in range(0, len(texts), self.batch):
                width = min(512, max(len(text) // 4 + 2 for text in texts[i : i + self.batch]))
                self._transformer(torch.zeros(len(texts[i : i + self.batch]), width, dtype=torch.long))
        return super()._embed(texts)

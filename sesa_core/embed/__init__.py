"""Embedders: what turns questions and cards into vectors. `EMBEDDERS` names them, as `bank.embedder` does.

A new one is a file beside `wordllama.py` with its own floor and dedup threshold, a line here and its name in `config/models.py`.
"""

from sesa_core.embed.base import Embedder
from sesa_core.embed.wordllama import WordLlamaEmbedder

__all__ = ["EMBEDDERS", "Embedder", "WordLlamaEmbedder"]

EMBEDDERS: dict[str, type[Embedder]] = {"wordllama": WordLlamaEmbedder}

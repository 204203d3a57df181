"""A bank of any size in no time: different lessons with drawn vectors."""

import numpy as np

from sesa_core.cards.schema import SkillCard
from sesa_core.embed.wordllama import WordLlamaEmbedder
from tests.bank_support import card


def many_cards(count: int, rng: np.random.Generator) -> tuple[list[SkillCard], np.ndarray]:
    """`count` cards sorted by id and their vectors (N, D) float32, of unit length."""
    first = card("anthem", card_id="card-000000")
    cards = [first.model_copy(update={"card_id": f"card-{i:06d}", "pattern": f"The question is of kind {i}."}) for i in range(count)]
    matrix = rng.standard_normal((count, WordLlamaEmbedder.dimension)).astype(np.float32)
    return cards, matrix / np.linalg.norm(matrix, axis=1, keepdims=True)

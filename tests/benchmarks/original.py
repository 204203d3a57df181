"""The original's way of keeping a bank, written anew from its description, so that ours can be measured against it.

A list of cards and a matrix in the same order. A question is embedded alone, all similarities are sorted, the first three are
taken. An update embeds the whole bank again, rewrites its file and writes a second full copy as a snapshot.
"""

import json
from pathlib import Path

import numpy as np

from sesa_core.cards.lesson import embedding_text
from sesa_core.cards.schema import SkillCard
from sesa_core.embed.base import Embedder


class OriginalBank:
    def __init__(self, folder: Path, cards: list[SkillCard], embedder: Embedder, matrix: np.ndarray | None = None) -> None:
        """`matrix` (N, D) are the cards' vectors, if they are known already: setting up is not what is measured."""
        self.folder, self.embedder, self.skills = folder, embedder, list(cards)
        self.embeddings = matrix if matrix is not None else self._embed_all()

    def _embed_all(self) -> np.ndarray:
        return np.vstack([self.embedder.embed_cards([embedding_text(card)]) for card in self.skills])

    def retrieve(self, question: str, top_k: int = 3) -> list[tuple[SkillCard, float]]:
        similarity = self.embeddings @ self.embedder.embed_questions([question])[0]
        return [(self.skills[i], float(similarity[i])) for i in np.argsort(-similarity)[:top_k]]

    def update(self, new: list[SkillCard], step: int) -> None:
        self.skills += new
        self.embeddings = self._embed_all()
        rows = "".join(json.dumps(card.model_dump(mode="json", exclude={"vector"})) + "\n" for card in self.skills)
        (self.folder / "skills.jsonl").write_text(rows)
        (self.folder / f"skills_step_{step}.jsonl").write_text(rows)

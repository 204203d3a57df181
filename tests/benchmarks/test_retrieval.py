"""256 questions of a step against a bank: all at once from the frozen snapshot, and one by one the original's way."""

import numpy as np
import pytest

from sesa_core.bank.snapshot import BankSnapshot
from sesa_core.embed.wordllama import WordLlamaEmbedder
from sesa_core.rng import stream
from tests.bank_support import question
from tests.benchmarks.embedders import TransformerCost
from tests.benchmarks.many_cards import many_cards
from tests.benchmarks.original import OriginalBank
from tests.benchmarks.ratio import compare

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
RELATIONS = ("anthem", "currency", "religion", "climate", "calling code")


def compare_retrieval(benchmark, folder, size: int, theirs: WordLlamaEmbedder, at_least: float | None = None) -> None:
    cards, matrix = many_cards(size, stream(0, "benchmark"))
    snapshot = BankSnapshot(cards, matrix, WordLlamaEmbedder(), 0)
    original = OriginalBank(folder, cards, theirs, np.array(matrix))
    questions = [question(RELATIONS[i % 5]).replace("Cordoba", f"Cordoba {i}") for i in range(256)]

    def one_by_one() -> list:
        return [original.retrieve(q) for q in questions]

    def at_once() -> list:
        return snapshot.retrieve(questions, top_k=3, floor=-1.0)

    ours, published = [[r.similarity for r in row] for row in at_once()], [[near for _, near in row] for row in one_by_one()]
    assert np.allclose(ours, published, atol=1e-5), "the same cards, but for ties"
    compare(benchmark, at_once, one_by_one, at_least)


@pytest.mark.parametrize("size", [800, 100_000])
def test_retrieval_is_twenty_times_as_fast_as_published(benchmark, tmp_path, size):
    compare_retrieval(benchmark, tmp_path, size, TransformerCost(), at_least=20)


@pytest.mark.parametrize("size", [800, 100_000])
def test_retrieval_where_the_original_has_our_embedder(benchmark, tmp_path, size):
    """What batching and selection gain over one question at a time and a full sort; no number is asked for."""
    compare_retrieval(benchmark, tmp_path, size, WordLlamaEmbedder())

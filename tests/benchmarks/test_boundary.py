"""A boundary that adds twelve cards: ours, in full (recovery, credit, dedup, gate, versioned tables, tags, ledger), against the
original's update (embed the whole bank again, rewrite its file, copy it); and ours in a bank a hundred times as large."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median

import pytest

from sesa_core.bank.bank import Bank
from sesa_core.bank.boundary import commit_segment, initialise
from sesa_core.bank.exchange.records import Record
from sesa_core.bank.segment import SegmentCommit
from sesa_core.config.models import BankSettings
from sesa_core.embed.wordllama import WordLlamaEmbedder
from sesa_core.judge.base import CardDraft
from sesa_core.rng import stream
from tests.bank_support import card, draft, failure, reply, segment_commit, use
from tests.benchmarks.embedders import TransformerCost
from tests.benchmarks.many_cards import many_cards
from tests.benchmarks.original import OriginalBank
from tests.benchmarks.ratio import ROUNDS, compare, seconds

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
ADDED = 12
ROOMY = BankSettings(max_cards=100_000)


@contextmanager
def filled_bank(folder: Path, embedder: WordLlamaEmbedder, size: int) -> Iterator[Bank]:
    """A bank with `size` cards."""
    with Bank.open(folder, embedder, by="benchmark", run="r", settings=ROOMY) as bank:
        initialise(bank.store, [], checkpoints={}, config_hash="c", max_cards=ROOMY.max_cards)
        bank.take_in_records(records(size))
        yield bank


def records(size: int) -> list[Record]:
    cards, matrix = many_cards(size, stream(0, "benchmark"))
    return [Record(c.model_copy(update={"vector": tuple(v.tolist()), "run": "r"})) for c, v in zip(cards, matrix, strict=True)]


def segment(number: int) -> SegmentCommit:
    """A segment whose twelve failures become twelve cards, and that used twelve cards."""
    names = [f"f{number}-{i}" for i in range(ADDED)]
    failures = [failure(name, step=10 * number) for name in names]
    replies = [reply(name, lesson(word(number, i))) for i, name in enumerate(names)]
    uses = [use(f"card-{i:06d}", f"p{number}-{i}", (1.0, 0.0), step=10 * number) for i in range(ADDED)]
    return segment_commit(number, uses=uses, failures=failures, replies=replies, bank=ROOMY)


def lesson(about: str) -> CardDraft:
    pattern, distinction = f"The question asks for the {about} of a country.", f"For the {about}, search the country's name with {about}."
    return draft("anthem", pattern=pattern, key_distinction=distinction, trigger_keywords=(about,), queries=(f"{{country}} {about}",))


def word(number: int, i: int) -> str:
    """A made-up word of its own for each lesson."""
    rng = stream(0, "word", number, i)
    return "".join("bcdfglmnprstvz"[rng.integers(14)] + "aeiou"[rng.integers(5)] for _ in range(4))


def commit_next(bank: Bank, numbers: count) -> None:
    report = commit_segment(bank.store, segment(next(numbers)))
    assert len(report.added) == ADDED


def compare_boundaries(benchmark, folder: Path, theirs: WordLlamaEmbedder, at_least: float | None = None) -> None:
    cards, matrix = many_cards(800, stream(0, "benchmark"))
    original, numbers, steps = OriginalBank(folder, cards, theirs, matrix), count(1), count(10, 10)
    new = [card("anthem", card_id=f"new-{i}", pattern=f"The question is new, of kind {i}.") for i in range(ADDED)]
    with filled_bank(folder / "bank", WordLlamaEmbedder(), 800) as bank:
        compare(benchmark, lambda: commit_next(bank, numbers), lambda: original.update(new, next(steps)), at_least)


def test_a_boundary_is_twenty_times_as_fast_as_published(benchmark, tmp_path):
    compare_boundaries(benchmark, tmp_path, TransformerCost(), at_least=20)


def test_a_boundary_where_the_original_has_our_embedder(benchmark, tmp_path):
    """What gates, versions, tags and ledger cost over a plain rewrite; no number is asked for."""
    compare_boundaries(benchmark, tmp_path, WordLlamaEmbedder())


def test_a_boundary_of_a_hundred_times_as_many_cards_takes_at_most_twice_as_long(tmp_path):
    """In a run's own process, which has the cards at hand that its last boundary left; and how long the first after an opening takes."""
    model, took, first = WordLlamaEmbedder(), {}, {}
    for size in (800, 80_000):
        folder = tmp_path / str(size)
        with filled_bank(folder, model, size) as bank:
            numbers = count(1)
            commit_next(bank, numbers)
            took[size] = median(seconds(lambda b=bank, n=numbers: commit_next(b, n)) for _ in range(ROUNDS))
        with Bank.open(folder, model, by="benchmark", run="r", settings=ROOMY) as bank:
            first[size] = seconds(lambda b=bank, n=numbers: commit_next(b, n))
    for which, found in (("a boundary", took), ("the first after an opening", first)):
        print(f"\n{which}: 800 cards {found[800]:.2f} s, 80,000 cards {found[80_000]:.2f} s, {found[80_000] / found[800]:.1f} times")
    assert took[80_000] <= 2 * took[800]

"""Rows that begin alike stand once in a packing, and every token still sees its own row alone."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sesa_core.training.verl.shared_prefix import LONGEST_TREE, pack

CHEAP = 1e9  # attention costs next to nothing: whatever can be shared is


def rows_of(*lists) -> list[np.ndarray]:
    return [np.array(ids, dtype=np.int64) for ids in lists]


def what_each_token_reads(packing, row: int) -> list[list[tuple[int, int]]]:
    """For each token of a row the (id, position) of everything that it sees, in order of position."""
    length = packing.ids.shape[1]
    read = []
    for place in packing.places[row]:
        number, column = divmod(int(place), length)
        seen = np.flatnonzero(packing.sees[number, column])
        read.append(sorted(((int(packing.ids[number, i]), int(packing.positions[number, i])) for i in seen), key=lambda pair: pair[1]))
    return read


def assert_each_row_is_read_as_if_alone(rows: list[np.ndarray], pairs_per_token: float = CHEAP) -> None:
    packing = pack(rows, pairs_per_token)
    if packing is None:
        return
    for number, row in enumerate(rows):
        alone = [(int(token), position) for position, token in enumerate(row)]
        assert what_each_token_reads(packing, number) == [alone[: i + 1] for i in range(len(row))]


def test_a_shared_beginning_stands_once():
    prompt = list(range(100, 120))
    rows = rows_of([*prompt, 1, 2], [*prompt, 1, 3], [*prompt, 4])
    packing = pack(rows, CHEAP)
    assert packing.ids.shape == (1, 24)  # 20 + (1, 2) + (3) + (4) instead of 22 + 22 + 21
    assert packing.places[0][:21].tolist() == packing.places[1][:21].tolist()
    assert packing.places[0][21] != packing.places[1][21]
    assert_each_row_is_read_as_if_alone(rows)


def test_trees_lie_side_by_side():
    rows = rows_of([*[7] * 10, *[50] * 30], [*[7] * 10, *[60] * 5], [8] * 20, [8] * 15)
    packing = pack(rows, CHEAP)
    assert packing.ids.shape == (2, 45)  # 10 + 30 + 5, and 20 beside padding
    assert_each_row_is_read_as_if_alone(rows)


def test_a_row_joins_a_tree_where_the_tokens_saved_are_worth_the_pairs_compared():
    """Two rows of 30 that share 10: 50 tokens in one tree instead of 60, 50 x 50 pairs instead of 2 x 30 x 30, 700 more."""
    rows = rows_of([*[1] * 10, *[2] * 20], [*[1] * 10, *[3] * 20])
    assert pack(rows, 70).ids.shape == (1, 50)
    assert pack(rows, 69) is None


def test_the_same_row_twice_costs_nothing():
    row = list(range(30))
    packing = pack(rows_of(row, row), CHEAP)
    assert packing.ids.shape == (1, 30)
    assert packing.places[0].tolist() == packing.places[1].tolist() == row


def test_a_tree_does_not_outgrow_its_mask():
    prompt = list(range(100, 140))
    rows = rows_of(*([*prompt, *[token] * 300] for token in range(8)))
    packing = pack(rows, CHEAP)
    assert packing.ids.shape[1] <= LONGEST_TREE
    assert_each_row_is_read_as_if_alone(rows)
    assert pack(rows_of([*prompt, *[1] * 1500], [*prompt, *[2] * 1500]), CHEAP) is None


def test_padding_sees_only_itself():
    packing = pack(rows_of(range(30), [5] * 20, [5] * 20), CHEAP)
    padding = packing.sees[1, 20:]
    assert (padding.sum(-1) == 1).all()
    assert not packing.sees[1, :20, 20:].any()


@given(
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=40), min_size=1, max_size=12),
    st.integers(0, 30),
    st.sampled_from([10, 100, 1000, CHEAP]),
)
def test_whatever_rows_share_each_is_read_as_if_alone(tails, shared, pairs_per_token):
    """Two token ids only, so that beginnings of every length are shared."""
    assert_each_row_is_read_as_if_alone(rows_of(*([1] * shared + tail for tail in tails)), pairs_per_token)

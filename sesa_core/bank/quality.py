"""The quality gate, run by Great Expectations: one suite over candidates, two over the bank (each card, and all of them together).

Invariant: the gate cannot pass vacuously. An empty frame, an empty suite, a check that did not run, looked at no value or
raised: each of these fails as a row of its own. Edge case: optional columns are judged through derived ones that are never null.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from sesa_core.cards.schema import CATEGORIES, CardState, Origin

TEXTS = ("pattern", "common_confusion", "key_distinction")  # judged by what is derived from them
IDENTITY = ("card_id", "content_hash")
SHORT = (*IDENTITY, "category", "origin", "state", "embedder")
REQUIRED = (*SHORT, *TEXTS)
COUNTERS = ("retrieved_count", "helpful_count", "hurt_count", "uplift_n")
WEIGHTS = (
    *("credit_helpful", "credit_hurt", "recent_retrieved", "recent_helpful", "recent_hurt"),
    *("uplift_var", "uplift_weight", "uplift_chance", "uplift_squares", "recent_uplift_weight"),
)
DERIVED = (
    *("query_count", "keyword_count", "longest_query", "shortest_text", "longest_text", "vector_length", "vector_norm"),
    *("lowest_counter", "credited_count", "interval", "missing_fields", "wrong_types"),
)
WHOLE = ""  # card id of a finding about the frame as a whole
_SHOWN_VALUES = 200


@dataclass(frozen=True)
class GateRow:
    """One finding: which card breaks which rule with which value. `card_id` is empty for the frame as a whole."""

    card_id: str
    rule: str
    value: str


@dataclass(frozen=True)
class GateResult:
    """What a suite found. `evaluated` counts expectations that really ran on values."""

    suite: str
    evaluated: int
    expected: int
    findings: tuple[GateRow, ...]

    @property
    def passed(self) -> bool:
        return not self.findings and self.expected > 0 and self.evaluated == self.expected

    @property
    def whole(self) -> tuple[GateRow, ...]:
        """Findings that no single card explains."""
        return tuple(f for f in self.findings if f.card_id == WHOLE)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"findings": [asdict(f) for f in self.findings], "passed": self.passed}


def frame(records: Any, vectors: np.ndarray) -> Any:
    """What the suites look at, and no more, since each column has its price.

    `records` is a pandas frame with one row a card and the columns of the `cards` table. Derived columns stand in place of lists,
    vectors (N, D) and optional values.
    """
    import pandas as pd

    lengths = pd.concat([records[n].fillna("").str.len() for n in TEXTS], axis=1)
    numbers = records[[*COUNTERS, *WEIGHTS]].astype(float)
    norms = np.linalg.norm(vectors, axis=1)
    empty = {n: (records[n].isna() | (records[n] == "")).astype(bool) for n in REQUIRED}
    empty |= {n: ~np.isfinite(numbers[n]) for n in numbers.columns} | {"vector_norm": ~np.isfinite(norms)}
    typed = [(REQUIRED, str), (COUNTERS, int), (WEIGHTS, float)]
    odd = {n: _of_another_type(records[n], kind) for names, kind in typed for n in names}
    derived = {
        "query_count": np.fromiter(map(len, records["queries"]), np.int64, len(records)),
        "keyword_count": np.fromiter(map(len, records["trigger_keywords"]), np.int64, len(records)),
        "longest_query": np.array([max(map(len, queries), default=0) for queries in records["queries"]], dtype=np.int64),
        "shortest_text": lengths.min(axis=1),
        "longest_text": lengths.max(axis=1),
        "vector_length": vectors.shape[1],
        "vector_norm": norms,
        "lowest_counter": numbers.min(axis=1),
        "credited_count": records["helpful_count"] + records["hurt_count"],
        "interval": (records["valid_until_step"].astype(float) - records["valid_from_step"]).fillna(0),
        "missing_fields": _names_where(empty, len(records)),
        "wrong_types": _names_where(odd, len(records)),
    }
    return records[[*SHORT, "retrieved_count"]].assign(**derived)


def _of_another_type(values: Any, kind: type) -> np.ndarray:
    """(N,) True where a value is there and not of that type."""
    import pandas as pd

    if values.dtype == object:
        return np.array([v is not None and type(v) is not kind for v in values], dtype=bool)
    fits = {str: pd.api.types.is_string_dtype, int: pd.api.types.is_integer_dtype, float: pd.api.types.is_float_dtype}[kind]
    return np.full(len(values), not fits(values.dtype))


def _names_where(flags: Mapping[str, Any], count: int) -> np.ndarray:
    """(N,) the names whose flag is up in that row, as one text; empty where none is."""
    names, raised = list(flags), np.stack([np.asarray(f, dtype=bool) for f in flags.values()])
    texts = np.full(count, "", dtype=object)
    for i in np.flatnonzero(raised.any(axis=0)):
        texts[i] = ", ".join(names[j] for j in np.flatnonzero(raised[:, i]))
    return texts


def _card_suite(dimension: int) -> list[Any]:
    """What holds for each candidate and each card of the bank. Each expectation has its price, about 10 ms, whatever the rows."""
    import great_expectations.expectations as gxe

    between, in_set = gxe.ExpectColumnValuesToBeBetween, gxe.ExpectColumnValuesToBeInSet
    return [
        gxe.ExpectTableColumnsToMatchSet(column_set=sorted({*SHORT, "retrieved_count", *DERIVED})),
        in_set(column="missing_fields", value_set=[""]),
        in_set(column="wrong_types", value_set=[""]),
        in_set(column="category", value_set=list(CATEGORIES)),
        in_set(column="state", value_set=[s.value for s in CardState]),
        in_set(column="origin", value_set=[o.value for o in Origin]),
        between(column="shortest_text", min_value=1),
        between(column="longest_text", max_value=400),
        between(column="query_count", min_value=1, max_value=3),
        between(column="keyword_count", min_value=1, max_value=8),
        between(column="longest_query", min_value=1, max_value=160),
        between(column="vector_length", min_value=dimension, max_value=dimension),
        between(column="vector_norm", min_value=0.999, max_value=1.001),
        between(column="lowest_counter", min_value=0),
        between(column="interval", min_value=0),
        gxe.ExpectColumnPairValuesAToBeGreaterThanB(column_A="retrieved_count", column_B="credited_count", or_equal=True),
    ]


def _unique_suite() -> list[Any]:
    """What holds for cards that stand side by side."""
    import great_expectations.expectations as gxe

    return [gxe.ExpectColumnValuesToBeUnique(column=name) for name in IDENTITY]


def check_candidates(records: Any, vectors: np.ndarray, *, dimension: int) -> GateResult:
    """The gate before admission (see `frame`): a candidate with a finding is quarantined, a finding without a card stops the
    boundary."""
    import great_expectations.expectations as gxe

    suite = [*_card_suite(dimension), *_unique_suite()]
    suite.append(gxe.ExpectColumnValuesToBeBetween(column="retrieved_count", min_value=0, max_value=0))
    return run_suite("candidates", suite, frame(records, vectors))


def check_bank(
    identities: Any, records: Any, vectors: np.ndarray, *, dimension: int, max_cards: int, tombstoned: Collection[str]
) -> GateResult:
    """The gate before the commit. `identities` (a frame with the columns of `IDENTITY`) are of every card that the boundary would
    leave in the bank, `records` and `vectors` (see `frame`) of those that this process has not yet seen pass."""
    import great_expectations.expectations as gxe

    of_each = _card_suite(dimension)
    of_all = [*_unique_suite(), gxe.ExpectTableRowCountToBeBetween(min_value=1, max_value=max_cards)]
    if tombstoned:
        of_all.append(gxe.ExpectColumnValuesToNotBeInSet(column="card_id", value_set=sorted(tombstoned)))
    together = run_suite("bank", of_all, identities)
    alone = run_suite("bank", of_each, frame(records, vectors)) if len(records) else GateResult("bank", len(of_each), len(of_each), ())
    findings = (*alone.findings, *together.findings)
    return GateResult("bank", alone.evaluated + together.evaluated, alone.expected + together.expected, findings)


@lru_cache(maxsize=1)
def _batches() -> Any:
    """A batch definition over whatever frame is handed in; one context for the process."""
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False, "metric_calculations": False}
    asset = context.data_sources.add_pandas("bank").add_dataframe_asset("cards")
    return asset.add_batch_definition_whole_dataframe("all")


def run_suite(name: str, expectations: Sequence[Any], cards: Any) -> GateResult:
    """Every expectation over the frame. Never passes on nothing: see the module's invariant."""
    import great_expectations as gx

    findings: list[GateRow] = []
    if not expectations:
        findings.append(GateRow(WHOLE, "empty_suite", "no expectation"))
    if len(cards) == 0:
        findings.append(GateRow(WHOLE, "empty_frame", "no card"))
    if findings:
        return GateResult(name, 0, len(expectations), tuple(findings))
    suite = gx.ExpectationSuite(name=name, expectations=list(expectations))
    batch = _batches().get_batch(batch_parameters={"dataframe": cards})
    results = batch.validate(suite, result_format="BASIC").results
    if not all(r.success for r in results):  # only then does it matter which cards: finding them takes longer than all the rest
        results = batch.validate(suite, result_format={"result_format": "COMPLETE", "unexpected_index_column_names": ["card_id"]}).results
    evaluated = 0
    for result in results:
        ran, rows = _findings(result.to_json_dict(), len(cards))
        evaluated += ran
        findings += rows
    if len(results) != len(expectations):
        findings.append(GateRow(WHOLE, "not_all_ran", f"{len(results)} of {len(expectations)} expectations"))
    return GateResult(name, evaluated, len(expectations), tuple(findings))


def _findings(result: dict[str, Any], rows: int) -> tuple[bool, list[GateRow]]:
    """(whether the check ran on values, what it found)."""
    config = result["expectation_config"]
    arguments = config["kwargs"]
    column = arguments.get("column") or "/".join(arguments[k] for k in ("column_A", "column_B") if k in arguments)
    rule = config["type"].removeprefix("expect_").removeprefix("column_") + (f":{column}" if column else "")
    crash = _crash(result.get("exception_info") or {})
    if crash is not None:
        return False, [GateRow(WHOLE, rule, f"could not run: {crash}")]
    outcome = result.get("result") or {}
    looked_at = outcome.get("element_count", rows) - outcome.get("missing_count", 0)
    if looked_at <= 0 and "not_be_null" not in rule:
        return False, [GateRow(WHOLE, rule, "looked at no value")]
    if result["success"]:
        return True, []
    unexpected = outcome.get("unexpected_index_list") or []
    if not unexpected:
        return True, [GateRow(WHOLE, rule, str(outcome.get("observed_value", outcome))[:_SHOWN_VALUES])]
    return True, [GateRow(str(u.get("card_id") or WHOLE), rule, str(u.get(column, ""))[:_SHOWN_VALUES]) for u in unexpected]


def _crash(info: dict[str, Any]) -> str | None:
    """The message of a check that raised; Great Expectations nests it by metric."""
    entries = [info] if "raised_exception" in info else [e for e in info.values() if isinstance(e, dict)]
    raised = next((e for e in entries if e.get("raised_exception")), None)
    return None if raised is None else str(raised.get("exception_message"))[:_SHOWN_VALUES]

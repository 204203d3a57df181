"""The numbers of the last screen, worked out by hand, and the screen itself."""

from io import StringIO
from pathlib import Path

from rich.console import Console

from sesa_core.report.summary import print_summary, summarise
from sesa_core.report.tables import bank_diff_rows, gate_rows, metric_rows

GATE = {"suite": "bank", "evaluated": 12, "expected": 12, "findings": [], "passed": True}
ADDED = {"card_id": "c1", "failure_id": "f1", "pattern": "a chain of two"}
EVICTED = {"card_id": "c0", "reason": "net score below 0", "pattern": "an old habit"}
REFUSED = {"failure_id": "f2", "rule": "duplicate", "reason": "cosine 0.91", "other": "c1"}


def boundary(number: int, new: int, consumed: int, pending: int, added=(), refused=(), evicted=(), dropped=0, dead=0) -> dict:
    failures = {"new": new, "consumed": consumed, "pending": pending, "dropped": dropped, "dead": dead}
    kept = {"boundary_id": number, "tag": f"first.b-{number:05d}", "gates": [GATE]}
    return kept | {"failures": failures, "added": list(added), "refused": list(refused), "evicted": list(evicted)}


def evaluation(greedy: float, sampled: float | None) -> dict:
    arm = {"greedy": greedy, "greedy_interval": [greedy - 0.05, greedy + 0.05], "sampled": sampled}
    return {"split": "test", "questions": 500, "samples": 4, "arms": {"off": arm, "on": arm, "placebo": arm}}


BOUNDARIES = [boundary(1, 7, 5, 2, [ADDED], [REFUSED]), boundary(2, 4, 3, 3, [ADDED, ADDED], [], [EVICTED])]
STEPS = [
    {"proposer/posed": 32.0, "proposer/valid": 16.0, "solver/problems": 20.0, "solver/solved": 9.0},
    {"proposer/posed": 32.0, "proposer/valid": 20.0, "solver/problems": 21.0, "solver/solved": 11.0},
]


def test_counts_are_sums_over_committed_boundaries_and_their_steps():
    report = summarise("first", BOUNDARIES, STEPS, {2: evaluation(0.9, 0.6), 0: evaluation(0.8, 0.25)})
    assert report["questions"] == {"posed": 64, "valid": 36, "played": 41, "solved": 20}
    assert report["failures"] == {"found": 11, "distilled": 8, "pending": 3, "dropped": 0, "dead": 0}
    assert report["cards"] == {"written": 3, "refused": 1, "evicted": 1}
    assert (report["segments"], report["steps"]) == (2, 2)
    assert list(report["evaluations"]) == ["0", "2"]


def test_the_last_screen_says_what_was_asked_for():
    report = summarise("first", BOUNDARIES, STEPS, {0: evaluation(0.8, 0.25), 2: evaluation(0.9, None)})
    out = StringIO()
    places = {"report": Path("runs/first/report.json"), "bank": "s3://cards/first"}
    print_summary(report, places, ["sesa one", "sesa two", "sesa three"], Console(file=out, width=80))
    text = out.getvalue()
    assert "before: greedy" in text and "after: greedy" in text
    assert "80.0% ± 5.0" in text and "90.0% ± 5.0" in text and "25.0%" in text
    assert [arm for arm in ("bank off", "bank on", "placebo") if arm in text] == ["bank off", "bank on", "placebo"]
    assert "64 posed, 36 valid; 41 played, 20 solved at least once" in text
    assert "3 written, 1 refused, 1 evicted" in text
    assert "report      runs/first/report.json\nbank        s3://cards/first\n" in text
    assert "next        sesa one\n            sesa two\n            sesa three\n" in text


def test_a_long_path_is_not_broken_into_two_lines():
    report = summarise("first", BOUNDARIES, STEPS, {0: evaluation(0.8, 0.25)})
    out, place = StringIO(), Path("/long") / ("x" * 90) / "report.json"
    print_summary(report, {"report": place}, [f"sesa eval --runs-dir {place.parent}"], Console(file=out, width=80))
    assert f"report      {place}\n" in out.getvalue()
    assert f"sesa eval --runs-dir {place.parent}\n" in out.getvalue()


def test_every_failure_that_was_found_is_accounted_for():
    rows = [boundary(1, 7, 3, 2, dropped=2), boundary(2, 4, 3, 1, dropped=1, dead=1)]
    report = summarise("first", rows, STEPS, {0: evaluation(0.8, 0.25)})
    counts = report["failures"]
    assert counts == {"found": 11, "distilled": 6, "pending": 1, "dropped": 3, "dead": 1}
    assert counts["found"] == counts["distilled"] + counts["pending"] + counts["dropped"] + counts["dead"]
    out = StringIO()
    print_summary(report, {}, [], Console(file=out, width=120))
    assert "11 found, 6 distilled, 1 waiting, 3 dropped, the queue being full, 1 given up after too many attempts" in out.getvalue()


def test_gate_rows_say_how_many_checks_ran_when_nothing_was_found():
    assert gate_rows({"gates": [GATE]}) == [{"suite": "bank", "card": "", "rule": "passed", "value": "12 of 12 checks ran"}]
    silent = GATE | {"evaluated": 0, "passed": False}
    assert gate_rows({"gates": [silent]})[0]["rule"] == "did not pass"
    found = GATE | {"passed": False, "findings": [{"card_id": "c9", "rule": "category", "value": "other"}]}
    assert gate_rows({"gates": [found]}) == [{"suite": "bank", "card": "c9", "rule": "category", "value": "other"}]


def test_the_bank_diff_has_one_row_per_change_with_its_reason():
    rows = bank_diff_rows(boundary(2, 0, 0, 0, [ADDED], [REFUSED], [EVICTED]))
    assert [(r["change"], r["card"], r["reason"]) for r in rows] == [
        ("added", "c1", "failure f1"),
        ("evicted", "c0", "net score below 0"),
        ("refused", "", "duplicate: cosine 0.91"),
    ]
    assert {r["tag"] for r in rows} == {"first.b-00002"}


def test_metric_rows_put_the_headlines_first():
    rows = metric_rows({"a": 1.0, "solver/reward": 0.51239, "proposer/valid_rate": 0.5})
    assert [(r["metric"], r["mean"]) for r in rows] == [("solver/reward", 0.5124), ("proposer/valid_rate", 0.5), ("a", 1.0)]

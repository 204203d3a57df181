"""One row of each file of a world of files, read: a passage, a target or a question, or the fault that it has. Pure.

Invariant: what is read can be used: a title and an answer are never empty, an answer has a letter or a digit. Edge case: keys
that are not named here are a person's own and are passed over.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sesa_core.text.normalize import normalize
from sesa_core.types import Target
from sesa_core.world.base import HeldOutQuestion
from sesa_core.world.passages import Document
from sesa_core.world.rows import Fault, says_something, shown

SPLITS = ("dev", "test")
BENCHMARK_PREFIX = "searchR1_"  # before a benchmark's name in verl's rows


@dataclass(frozen=True)
class SplitQuestion:
    """`split` is "" for a question of both."""

    asked: HeldOutQuestion
    split: str = ""


def passage_of(row: Mapping[str, Any]) -> Document | Fault:
    """The first line of `contents` is the title, perhaps in quotes; the rest is what is searched and read."""
    name, contents = row.get("id"), row.get("contents")
    if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
        return Fault(shown(row), "it needs an `id`, a text or a whole number")
    if not isinstance(contents, str) or not contents.strip():
        what = "are empty" if isinstance(contents, str) else "are not text" if "contents" in row else "are missing"
        return Fault(shown(row), f'its `contents` {what}: write "contents": "Title\\ntext"')
    title, _, text = contents.strip().partition("\n")
    title = title.strip()
    if len(title) > 2 and title[0] == title[-1] == '"':
        title = title[1:-1].strip() or title
    text = text.strip()
    return Document(str(name), title, text, text)


def target_of(row: Mapping[str, Any]) -> Target | Fault:
    """A target's id tells its relation, its answer as `normalize` gives it (which has no slash), and its hops."""
    answer, aliases, hops, relation = row.get("answer"), row.get("aliases"), row.get("hops"), row.get("relation", "")
    if not says_something(answer):
        return Fault(shown(row), "it needs an `answer`, a text with a letter or a digit")
    if "aliases" not in row:
        return Fault(shown(row), 'it has no `aliases`: list other names of the answer, or write "aliases": [] if there is none')
    if not isinstance(aliases, list):
        return Fault(aliases, "`aliases` is a list of texts, [] if the answer has no other name")
    if empty := [alias for alias in aliases if not says_something(alias)]:
        return Fault(empty[0], "an alias is a text with a letter or a digit; leave this one out")
    if not isinstance(hops, int) or isinstance(hops, bool) or not 1 <= hops <= 3:
        return Fault(hops if "hops" in row else shown(row), "`hops` is how many searches a question should take: 1, 2 or 3")
    if not isinstance(relation, str):
        return Fault(relation, "`relation` is a text, or left out")
    others, relation = tuple(alias.strip() for alias in aliases), relation.strip()
    name = "/".join(filter(None, (relation, normalize(answer), str(hops))))
    return Target(name, answer.strip(), hops, others, relation)


def question_of(row: Mapping[str, Any]) -> SplitQuestion | Fault:
    """`question` and `golden_answers`, or verl's `extra_info.question` and `reward_model.ground_truth.target`."""
    question = row.get("question", _inside(row, "extra_info", "question"))
    answers = row.get("golden_answers", _inside(row, "reward_model", "ground_truth", "target"))
    split, hops, kind = row.get("split") or "", row.get("hops"), row.get("data_source")
    if not says_something(question):
        return Fault(shown(row), "it needs a `question` (or extra_info.question), a text with a letter or a digit")
    if not isinstance(answers, list):
        return Fault(shown(row), "it needs `golden_answers` (or reward_model.ground_truth.target), a list of texts")
    usable = tuple(answer for answer in answers if says_something(answer))
    if not usable:
        return Fault(shown(answers), "no answer is a text with a letter or a digit, so nothing could be right: leave the question out")
    if split not in ("", *SPLITS):
        return Fault(split, "`split` is dev or test, or left out for a question of both")
    if hops is not None and (not isinstance(hops, int) or isinstance(hops, bool) or hops < 1):
        return Fault(hops, "`hops` is a whole number from 1, or left out")
    kind = kind.removeprefix(BENCHMARK_PREFIX) if isinstance(kind, str) else ""
    return SplitQuestion(HeldOutQuestion(question.strip(), usable, hops, kind), split)


def _inside(row: Mapping[str, Any], *path: str) -> Any:
    found: Any = row
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found

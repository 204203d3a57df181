"""From a proposer's transcript to a question that may be played: the checks in their order, each rejection with its reason.

Pure. The last check, verification, needs a policy or a world and lives in `verify.py`. Nothing here is ever asked about a
dropped rollout: an infrastructure failure is not a rejection.
"""

from collections.abc import Collection, Sequence
from enum import StrEnum

from sesa_core.config.models import ValidationSettings
from sesa_core.text.normalize import holds_glued, jaccard, names, normalize
from sesa_core.types import Ending, Target, Trajectory, TurnKind


class Rejection(StrEnum):
    """Why a question is not played."""

    NO_QUESTION = "no_question"
    LENGTH = "length"
    ANSWER_LEAK = "answer_leak"
    NO_EVIDENCE = "no_evidence"
    TOO_FEW_SEARCHES = "too_few_searches"
    REPEATED_SEARCH = "repeated_search"
    TARGET_IN_QUERY = "target_in_query"
    NEAR_DUPLICATE = "near_duplicate"
    EVAL_OVERLAP = "eval_overlap"
    WRONG_ANSWER = "wrong_answer"
    WRONG_HOPS = "wrong_hops"
    UNSUPPORTED = "unsupported"
    FOREIGN_SPLIT = "foreign_split"
    AMBIGUOUS = "ambiguous"
    TOO_EASY = "too_easy"


def check_question(
    trajectory: Trajectory,
    target: Target,
    settings: ValidationSettings,
    recent_questions: Sequence[str] = (),
    held_out: Collection[str] = frozenset(),
) -> Rejection | None:
    """The first check that fails, None if the question may go to verification.

    `recent_questions` are those of earlier steps; `held_out` are normalised evaluation questions.
    """
    question = trajectory.final
    if question is None or trajectory.ending is not Ending.FINISHED:
        return Rejection.NO_QUESTION
    if not _length_fits(question, settings):
        return Rejection.LENGTH
    if names_target(question, target):
        return Rejection.ANSWER_LEAK
    if (searches := _check_searches(trajectory, target, settings.forbid_target_in_query)) is not None:
        return searches
    window = recent_questions[-settings.near_duplicate_window :] if settings.near_duplicate_window else ()
    if any(jaccard(question, other) >= settings.near_duplicate_threshold for other in window):
        return Rejection.NEAR_DUPLICATE
    return Rejection.EVAL_OVERLAP if normalize(question) in held_out else None


def _length_fits(question: str, settings: ValidationSettings) -> bool:
    words = len(question.split())
    fits_words = (not settings.min_words or words >= settings.min_words) and (not settings.max_words or words <= settings.max_words)
    return settings.min_chars <= len(question) <= settings.max_chars and fits_words


def names_target(text: str, target: Target) -> bool:
    """Whether the target's answer or an alias stands in the text, as a run of tokens, whatever its accents, width and case, also in the
    possessive or with a blank left out."""
    return any(names(text, name) or holds_glued(text, name) for name in (target.answer, *target.aliases))


def _check_searches(trajectory: Trajectory, target: Target, forbid_target: bool) -> Rejection | None:
    if not trajectory.evidence:
        return Rejection.NO_EVIDENCE
    queries = [normalize(q) for q in trajectory.queries]
    found = {normalize(t.text) for t in trajectory.turns if t.kind is TurnKind.SEARCH and t.passages}
    if len(found) < target.hops:
        return Rejection.TOO_FEW_SEARCHES
    if len(set(queries)) < len(queries):
        return Rejection.REPEATED_SEARCH
    named = forbid_target and any(names_target(query, target) for query in trajectory.queries)
    return Rejection.TARGET_IN_QUERY if named else None

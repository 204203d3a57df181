"""Which boundary a person means: by number, by its own tag, by a name that a person gave it, or by a step of the run.

Pure. Invariant: a name never means two boundaries, since a person's tag can look like none of the other forms. Edge case: a
boundary whose versions a compaction has let go is known but cannot be read, and the message says which compaction it was.
"""

import re
from collections.abc import Mapping, Sequence

from sesa_core.bank.tables import BoundaryRow
from sesa_core.errors import ConfigError

At = BoundaryRow | int | str | None
_STEP = re.compile(r"step[ :=]?(\d+)")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_BOUNDARY_TAG = re.compile(r".*\.b-\d{5,}")


def run_slug(run: str) -> str:
    """A run's name as it stands in tags."""
    return re.sub(r"[^a-z0-9-]+", "-", run.lower()).strip("-") or "run"


def boundary_tag(run: str, boundary_id: int) -> str:
    """The tag that a boundary itself puts on what it pins."""
    return f"{run_slug(run)}.b-{boundary_id:05d}"


def check_tag_name(name: str) -> str:
    """The name itself, if a person may use it as a tag. Raises ConfigError."""
    if not _NAME.fullmatch(name) or name.isdigit() or _STEP.fullmatch(name) or _BOUNDARY_TAG.fullmatch(name):
        raise ConfigError(
            "tag", name, "a tag holds lower-case letters, digits, dots and hyphens, at most 63, and looks like no boundary, number or step"
        )
    return name


def released(rows: Sequence[BoundaryRow]) -> dict[int, int]:
    """Boundaries that cannot be read any more, with the boundary of the compaction that let them go."""
    return {gone: row.boundary_id for row in rows for gone in row.report.get("details", {}).get("released", ())}


def in_force_at(step: int, rows: Sequence[BoundaryRow]) -> BoundaryRow | None:
    """The boundary whose cards were shown at that step: the last one before the segment that played it was committed.

    For a step that no committed segment played it is the newest.
    """
    after = next((i for i, r in enumerate(rows) if (r.report.get("last_step") or 0) >= step), len(rows))
    return rows[max(after, 1) - 1] if rows else None


def kept_segments(rows: Sequence[BoundaryRow], tags: Mapping[str, int], newest: int) -> set[tuple[int, int]]:
    """(segment, attempt) whose checkpoints stay: of the `newest` segments, and of those that a boundary with a name stands on."""
    trained = [r for r in rows if r.kind == "segment"]
    stood_on = ([r for r in trained if r.boundary_id <= named][-1:] for named in tags.values())
    return {(r.segment, r.attempt) for r in [*trained[-newest:], *(r for found in stood_on for r in found)]}


def find_boundary(at: int | str, rows: Sequence[BoundaryRow], tags: Mapping[str, int]) -> BoundaryRow:
    """The boundary that `at` names, among `rows` by id; `tags` are a person's. Raises ConfigError for an unknown or a released one."""
    step = _STEP.fullmatch(at) if isinstance(at, str) else None
    if step is not None:
        found = in_force_at(int(step[1]), rows)
    else:
        wanted = tags.get(at, at) if isinstance(at, str) else at
        found = next((r for r in rows if wanted in (r.boundary_id, r.tag, str(r.boundary_id))), None)
    if found is None:
        raise ConfigError("at", at, _allowed(rows, tags))
    gone = released(rows)
    if found.boundary_id in gone:
        where = f"boundary {found.boundary_id} was let go by the compaction at boundary {gone[found.boundary_id]}"
        left = [str(r.boundary_id) for r in rows if r.boundary_id not in gone]
        raise ConfigError("at", at, f"{where}; those that can be read are {', '.join(left)}")
    return found


def _allowed(rows: Sequence[BoundaryRow], tags: Mapping[str, int]) -> str:
    if not rows:
        return "there are no boundaries yet"
    named = f", named {', '.join(sorted(tags))}" if tags else ""
    return (
        f"boundaries are 0 to {rows[-1].boundary_id}, tags {rows[0].tag} to {rows[-1].tag}{named}; "
        "step:25 means the boundary whose cards were shown at step 25"
    )

"""Cards as Agent Skills: one folder a card, holding a `SKILL.md` that other agents can load.

The front matter names and describes the skill and carries origin, scope and counters as text, where they say anything; the body
is the lesson. Invariant: reading gives back every field. Edge case: a folder written by hand needs the body's sections and no
metadata; vectors and tombstones are not part of the format.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from sesa_core.bank.exchange.records import Record, checked, record_from
from sesa_core.bank.rows import SHOWN_COUNTERS
from sesa_core.cards.schema import CONTENT_FIELDS, SkillCard
from sesa_core.errors import ConfigError

FILE = "SKILL.md"
NAME_CHARS, DESCRIPTION_CHARS = 64, 1024
_SENTENCES = {"When": "pattern", "Often confused with": "common_confusion", "Look for": "key_distinction", "Example": "example_question"}
_LISTS = {"Searches": "queries", "Triggers": "trigger_keywords"}
_FRONT = re.compile(r"\A---\n(.*?)\n---\n(.*)\Z", re.DOTALL)


def skill_name(card_id: str) -> str:
    """Lower-case letters, digits and single hyphens, at most 64; a shortened or altered id ends in a digest, so that none collide."""
    name = re.sub(r"[^a-z0-9]+", "-", card_id).strip("-")
    if name == card_id and len(name) <= NAME_CHARS:
        return name
    digest = hashlib.sha256(card_id.encode()).hexdigest()[:8]
    return f"{name[: NAME_CHARS - 9].strip('-')}-{digest}"


def description(card: SkillCard) -> str:
    return f"{card.pattern.rstrip('.')}. Use when a question mentions: {', '.join(card.trigger_keywords)}."[:DESCRIPTION_CHARS]


def skill_text(card: SkillCard) -> str:
    """The whole `SKILL.md` of a card."""
    fields = card.model_dump(mode="json", exclude={"vector", *CONTENT_FIELDS} - {"category"})
    defaults = {name: field.default for name, field in SkillCard.model_fields.items()}
    metadata = {name: str(value) for name, value in fields.items() if name in SHOWN_COUNTERS or value != defaults[name]}
    front = {"name": skill_name(card.card_id), "description": description(card), "metadata": metadata}
    parts = [f"---\n{yaml.safe_dump(front, sort_keys=False, allow_unicode=True, width=10_000)}---"]
    for heading, name in _SENTENCES.items():
        value = getattr(card, name)
        parts += [f"## {heading}\n\n{value}"] if value else []
    for heading, name in _LISTS.items():
        parts.append(f"## {heading}\n\n" + "\n".join(f"- {v}" for v in getattr(card, name)))
    return "\n\n".join(parts) + "\n"


def write(folder: Path, records: Sequence[Record]) -> None:
    """Buried cards are left out."""
    for record in records:
        if record.burial is None:
            place = folder / skill_name(record.card.card_id)
            place.mkdir(parents=True)
            (place / FILE).write_text(skill_text(record.card), encoding="utf-8")


def read(folder: Path) -> list[Record]:
    """Raises ConfigError naming folder, card and field."""
    files = sorted(folder.glob(f"*/{FILE}")) or sorted(folder.glob(FILE))
    return checked([_record(file) for file in files], str(folder.name))


def _record(file: Path) -> Record:
    where = f"{file.parent.name}/{FILE}"
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(where, None, f"the file cannot be read as UTF-8 text ({error})") from error
    found = _FRONT.match(text.replace("\r\n", "\n"))
    if found is None:
        raise ConfigError(where, text[:40], "it must begin with front matter between two lines of ---")
    front = _front_matter(where, found[1])
    metadata = {str(k): v for k, v in (front.get("metadata") or {}).items()}
    fields: dict[str, Any] = {"card_id": str(front.get("name", file.parent.name))} | metadata
    return record_from(where, fields | dict(_sections(found[2])))


def _front_matter(where: str, text: str) -> dict[str, Any]:
    try:
        front = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(where, text[:40], f"its front matter is not YAML ({' '.join(str(error).split())[:200]})") from error
    if not isinstance(front, dict) or not isinstance(front.get("metadata") or {}, dict):
        raise ConfigError(where, text[:40], "its front matter holds name, description and a mapping `metadata`")
    return front


def _sections(body: str) -> Iterator[tuple[str, Any]]:
    """(field, value) of every known heading. What stands below a heading is its value, whatever it looks like."""
    lines, i = body.split("\n"), 0
    headings = {f"## {h}": n for h, n in (_SENTENCES | _LISTS).items()}
    while i < len(lines):
        name, i = headings.get(lines[i].strip()), i + 1
        if name is None:
            continue
        while i < len(lines) and not lines[i].strip():
            i += 1
        if name in _LISTS.values():
            start = i
            while i < len(lines) and lines[i].startswith("- "):
                i += 1
            yield name, [line[2:] for line in lines[start:i]]
        elif i < len(lines):
            start, i = i, i + 1
            while i < len(lines) and lines[i].strip() and lines[i].strip() not in headings:
                i += 1
            yield name, "\n".join(lines[start:i])

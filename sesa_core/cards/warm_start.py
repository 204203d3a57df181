"""Cards of an earlier run as a start for a new one: JSONL, one card a line.

Invariant: every line is a valid card or the whole file is refused, with line, card and field named. A card keeps its own
`run`, so that two experiments can be told apart again.
"""

import json
from pathlib import Path

from sesa_core.cards.schema import SkillCard, written_card
from sesa_core.errors import ConfigError


def load_warm_start(path: str | Path) -> list[SkillCard]:
    """The cards of the file, in its order. Raises ConfigError naming line, card and field."""
    source = Path(path)
    if not source.is_file():
        raise ConfigError("bank.warm_start_path", str(path), "it must be a JSONL file of cards, or empty for none")
    cards: dict[str, SkillCard] = {}
    for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        card = _card(f"{source.name}, line {number}", line)
        if card is None:
            continue
        if card.card_id in cards:
            raise ConfigError(f"{source.name}, line {number}: card_id", card.card_id, "another line has it")
        cards[card.card_id] = card
    return list(cards.values())


def _card(where: str, line: str) -> SkillCard | None:
    """None for a tombstone, which the export of a bank holds beside its cards: a new run starts without another's graves."""
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(where, line[:60], f"each line must be one JSON object: {error}") from error
    if not isinstance(fields, dict):
        raise ConfigError(where, line[:60], "each line must be one JSON object")
    if fields.get("tombstone") is not None:
        return None
    fields.pop("content_hash", None)  # follows from the content
    return written_card(where, fields)

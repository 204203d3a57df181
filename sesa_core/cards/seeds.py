"""The hand-written seed cards: one YAML file a card, each with its reason (`why`).

Invariant: every file of a folder is a valid card or the whole folder is refused, with file, card and field named; the order
is that of the card ids. Edge case: a folder without any YAML file is an error, not an empty bank.
"""

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from sesa_core.cards.schema import Origin, SkillCard, written_card
from sesa_core.errors import ConfigError

SEED_FIELDS = (
    "card_id",
    "category",
    "pattern",
    "common_confusion",
    "key_distinction",
    "trigger_keywords",
    "queries",
    "example_question",
    "why",
)


def load_seed_cards(path: str | Path | None = None) -> list[SkillCard]:
    """The seed cards of a folder, or those that ship. Raises ConfigError naming file, card and field."""
    folder: Traversable = Path(path) if path is not None else files("sesa_core.cards") / "seeds"
    if not folder.is_dir():
        raise ConfigError("bank.seed_path", str(path), "it must be a folder of YAML cards, `builtin`, or empty for none")
    sources = sorted((f for f in folder.iterdir() if f.name.endswith((".yaml", ".yml"))), key=lambda f: f.name)
    if not sources:
        raise ConfigError("bank.seed_path", str(path), "the folder holds no .yaml file")
    cards: dict[str, SkillCard] = {}
    for source in sources:
        card = _seed_card(source.name, _fields(source))
        if card.card_id in cards:
            raise ConfigError(f"{source.name}: card_id", card.card_id, "another file of the folder has it")
        cards[card.card_id] = card
    return [cards[card_id] for card_id in sorted(cards)]


def _fields(source: Traversable) -> dict[str, Any]:
    try:
        fields = yaml.safe_load(source.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(source.name, " ".join(str(error).split())[:200], "the file must be readable YAML in UTF-8") from error
    if not isinstance(fields, dict):
        raise ConfigError(source.name, type(fields).__name__, "the file must hold one card as a mapping of its fields")
    return fields


def _seed_card(name: str, fields: dict[str, Any]) -> SkillCard:
    """One file's card; only content, id and reason may be written by hand."""
    where = f"{name}: card {fields.get('card_id', '(without id)')}"
    for unknown in sorted(map(str, set(fields) - set(SEED_FIELDS))):
        raise ConfigError(f"{where}: {unknown}", fields.get(unknown), f"a seed card's fields are {', '.join(SEED_FIELDS)}")
    if not fields.get("why"):
        raise ConfigError(f"{where}: why", fields.get("why"), "every seed card says why it is there")
    return written_card(name, fields | {"origin": Origin.SEED})

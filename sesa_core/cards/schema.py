"""The skill card: one lesson, with where it comes from, where it holds, how far it is trusted and what it has done.

Owns the fields, their limits and the Arrow schema that is derived from them. Invariant: every text is one line without
control characters, so that a card can stand in a prompt and in a table; `content_hash` follows from the content alone.
Edge case: `vector` is empty in memory unless asked for, since the bank keeps vectors as one matrix beside its cards.
"""

import hashlib
import json
import types
import unicodedata
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Protocol, Self, Union, get_args, get_origin

import pyarrow as pa
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from sesa_core.errors import MISSING, ConfigError

SCHEMA_VERSION = 1
CATEGORIES = (
    "multi_hop_chain",
    "entity_disambiguation",
    "temporal",
    "numeric_comparison",
    "attribute_lookup",
    "relation_direction",
    "list_or_superlative",
    "evidence_check",
)
CONTENT_FIELDS = ("category", "pattern", "common_confusion", "key_distinction", "trigger_keywords", "queries", "example_question")
EXAMPLE_CHARS = 200
PRIMARY_KEY = {"lance-schema:unenforced-primary-key": "true"}


def single_line(text: str) -> str:
    """The text itself, if it is one line: no line break, NUL or other control character, no blank at either end."""
    bad = next((c for c in text if unicodedata.category(c) in ("Cc", "Zl", "Zp", "Cs")), None)
    if bad is not None:
        raise ValueError(f"must be a single line without control characters, found {bad!r}")
    if text != text.strip():
        raise ValueError("must not begin or end with a blank")
    return text


def _known_category(value: str) -> str:
    if value not in CATEGORIES:
        raise ValueError(f"{value!r} is not one of {', '.join(CATEGORIES)}")
    return value


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    if len({v.casefold() for v in values}) < len(values):
        raise ValueError("holds the same text twice")
    return values


Sentence = Annotated[str, StringConstraints(min_length=1, max_length=400), AfterValidator(single_line)]
Keyword = Annotated[str, StringConstraints(min_length=1, max_length=60), AfterValidator(single_line)]
Query = Annotated[str, StringConstraints(min_length=1, max_length=160), AfterValidator(single_line)]
Label = Annotated[str, StringConstraints(max_length=200), AfterValidator(single_line)]
CardId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,79}$")]
Count = Annotated[int, Field(ge=0)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Measure = Annotated[float, Field(allow_inf_nan=False)]


class Origin(StrEnum):
    SEED = "seed"
    MINED = "mined"
    DISTILLED = "distilled"
    PERSON = "person"


class CardState(StrEnum):
    CANDIDATE = "candidate"  # waits for a person's approval
    ACTIVE = "active"
    SUSPENDED = "suspended"  # kept, never shown


class SkillCard(BaseModel):
    """One lesson. Steps count from 0; the decayed counters (`recent_*`) are those at `last_retrieved_step`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # content
    category: Annotated[str, AfterValidator(_known_category)]
    pattern: Sentence
    common_confusion: Sentence
    key_distinction: Sentence
    trigger_keywords: Annotated[tuple[Keyword, ...], Field(min_length=1, max_length=8), AfterValidator(_distinct)]
    queries: Annotated[tuple[Query, ...], Field(min_length=1, max_length=3), AfterValidator(_distinct)]
    example_question: Annotated[str, StringConstraints(max_length=EXAMPLE_CHARS), AfterValidator(single_line)] = ""
    # provenance
    card_id: CardId
    origin: Origin
    why: Sentence | None = Field(None, description="a person's reason for the card; never shown to a policy")
    source_problem_id: Label = ""
    source_run: Label = ""
    judge_model: Label = ""
    prompt_hash: Label = ""
    created_step: Count = 0
    created_boundary: Count = 0
    # scope
    run: Label = ""
    task_family: Label = Field("", description="empty: any")
    dataset: Label = Field("", description="empty: any")
    # validity
    valid_from_step: Count = 0
    valid_until_step: Count | None = None
    last_retrieved_step: Count | None = None
    last_helped_step: Count | None = None
    recent_retrieved: Weight = 0.0
    recent_helpful: Weight = 0.0
    recent_hurt: Weight = 0.0
    policy_version: Count = Field(0, description="the solver's version that earned the newest use")
    # trust
    state: CardState = CardState.ACTIVE
    embedder: Label = ""
    vector: tuple[float, ...] = Field((), repr=False)
    # counters
    retrieved_count: Count = 0
    helpful_count: Count = 0
    hurt_count: Count = 0
    credit_helpful: Weight = 0.0
    credit_hurt: Weight = 0.0
    uplift_mean: Measure = Field(0.0, description="what seeing the card changes in mean reward, shrunk towards 0")
    uplift_var: Weight = Field(0.0, description="variance of uplift_mean; 0 before anything was compared")
    uplift_n: Count = Field(0, description="problems at which some rollouts saw the card and some did not")
    uplift_sum: Measure = Field(0.0, description="sum of weight x difference in mean reward over those problems")
    uplift_weight: Weight = Field(0.0, description="sum of the weights, in rollouts; 4 against 4 weigh 2")
    uplift_chance: Weight = Field(0.0, description="variance of uplift_sum if the card changed nothing")
    uplift_squares: Weight = Field(0.0, description="sum of (weight x difference) squared")
    recent_uplift_sum: Measure = Field(0.0, description="uplift_sum, decayed")
    recent_uplift_weight: Weight = Field(0.0, description="uplift_weight, decayed")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.helpful_count + self.hurt_count > self.retrieved_count:
            raise ValueError("helpful_count + hurt_count exceeds retrieved_count")
        if self.valid_until_step is not None and self.valid_until_step < self.valid_from_step:
            raise ValueError("valid_until_step lies before valid_from_step")
        return self

    @property
    def net(self) -> int:
        """Uses that helped minus uses that hurt."""
        return self.helpful_count - self.hurt_count

    @property
    def content_hash(self) -> str:
        """Of the content alone: the same lesson in two runs has one hash."""
        content = {name: getattr(self, name) for name in CONTENT_FIELDS}
        return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:32]

    def row(self) -> dict[str, Any]:
        """The card as a table row, `content_hash` included."""
        return self.model_dump(mode="json") | {"content_hash": self.content_hash}


class DraftFields(Protocol):
    """What a card's author wrote: a judge's draft has these, and so has a person's form."""

    category: str
    pattern: str
    common_confusion: str
    key_distinction: str
    trigger_keywords: tuple[str, ...]
    queries: tuple[str, ...]


def card_from_draft(draft: DraftFields, *, card_id: str, origin: Origin, example_question: str = "", **provenance: Any) -> SkillCard:
    """A card from what its author wrote; `provenance` are further fields of `SkillCard`. Raises pydantic's ValidationError."""
    content = {name: getattr(draft, name) for name in CONTENT_FIELDS if name != "example_question"}
    example = " ".join(example_question.split())[:EXAMPLE_CHARS].strip()
    return SkillCard(**content, card_id=card_id, origin=origin, example_question=example, **provenance)


def written_card(where: str, fields: Mapping[str, Any]) -> SkillCard:
    """The card that a person's file holds at `where`. Raises ConfigError naming place, card and field."""
    try:
        return SkillCard.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the card"
        value = MISSING if first["type"] == "missing" else first["input"] if first["loc"] else None
        shown = value[:60] + "…" if isinstance(value, str) and len(value) > 60 else value
        raise ConfigError(
            f"{where}: card {fields.get('card_id', '(without id)')}: {field}", shown, first["msg"].removeprefix("Value error, ")
        ) from error


def card_from_row(row: Mapping[str, Any]) -> SkillCard:
    """The card of a table row. Raises ValidationError, or ValueError if the content is not what its hash was made from."""
    fields = dict(row)
    stored_hash = fields.pop("content_hash")
    fields["vector"] = tuple(fields.get("vector") or ())
    card = SkillCard.model_validate(fields)
    if card.content_hash != stored_hash:
        raise ValueError(f"card {card.card_id}: its content does not match its content_hash")
    return card


_ARROW = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}


def _arrow_type(annotation: Any) -> pa.DataType:
    """The Arrow type of a field's annotation: scalars, enumerations (as text) and tuples of them (as lists)."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is tuple:
        return pa.list_(pa.field("item", _arrow_type(get_args(annotation)[0]), nullable=False))
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return pa.string()
    return _ARROW[annotation]


def arrow_schema(dimension: int) -> pa.Schema:
    """The `cards` table for vectors of `dimension`: one column a field, NOT NULL unless the field may be None."""
    columns = []
    for name, field in SkillCard.model_fields.items():
        options = get_args(field.annotation) if get_origin(field.annotation) in (Union, types.UnionType) else (field.annotation,)
        kind = next(o for o in options if o is not type(None))
        arrow = pa.list_(pa.float32(), dimension) if name == "vector" else _arrow_type(kind)
        columns.append(pa.field(name, arrow, nullable=len(options) > 1, metadata=PRIMARY_KEY if name == "card_id" else None))
    columns.append(pa.field("content_hash", pa.string(), nullable=False))
    return pa.schema(columns)

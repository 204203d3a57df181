"""What a question pays its proposer: one frozen variant per kind, so that a key that belongs to another kind is refused.

Invariant: under no kind does an invalid question pay more than the worst valid one. Edge case: settings that name no kind are
the frontier's, since a person who sets one key of the default should not have to name the default.
"""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from sesa_core.config.section import Section

DEFAULT_KIND = "frontier"


class _RewardSettings(Section):
    kind: str
    invalid_reward: float = Field(0.0, description="reward of an invalid question; never more than the worst valid one earns")

    @property
    def worst_valid(self) -> float:
        """The least that a valid question can earn."""
        return 0.0

    @model_validator(mode="after")
    def _invalid_never_pays_more(self) -> "_RewardSettings":
        if self.invalid_reward > self.worst_valid:
            raise ValueError(
                f"invalid_reward {self.invalid_reward:g} must be at most {self.worst_valid:g}, the least that a valid question earns, "
                "else an invalid question pays better than a hard one"
            )
        return self


class FrontierRewardSettings(_RewardSettings):
    kind: Literal["frontier"] = Field("frontier", description="4 (low + p)(high - p), at least 0; minus extreme_penalty at p = 0 or 1")
    low: float = Field(0.0, ge=0, le=1, description="l of the formula")
    high: float = Field(1.0, ge=0, le=2, description="h of the formula")
    extreme_penalty: float = Field(0.0, ge=0, description="lambda: what a question that all or none solve costs")

    @property
    def worst_valid(self) -> float:
        return -self.extreme_penalty or 0.0  # not -0, which a message would show


class OneMinusPassRateSettings(_RewardSettings):
    kind: Literal["one_minus_pass_rate"] = Field(
        "one_minus_pass_rate",
        description="1 - p: a question that nobody solves pays best (as in Search Self-Play), so the verification alone stands "
        "between the proposer and unanswerable questions",
    )


class PassRateBandSettings(_RewardSettings):
    kind: Literal["pass_rate_band"] = Field("pass_rate_band", description="1 - 2 |p - 1/2|: linear, best where half of a group solve it")


class ValidOnlySettings(_RewardSettings):
    kind: Literal["valid_only"] = Field("valid_only", description="1 for any valid question, however many solve it")
    invalid_reward: float = Field(0.0, lt=1, description="reward of an invalid question; at 1 nothing would be left to learn")

    @property
    def worst_valid(self) -> float:
        return 1.0


def _kind(settings: Any) -> Any:
    return settings.get("kind", DEFAULT_KIND) if isinstance(settings, dict) else getattr(settings, "kind", None)


ProposerRewardSettings = Annotated[
    Annotated[FrontierRewardSettings, Tag("frontier")]
    | Annotated[OneMinusPassRateSettings, Tag("one_minus_pass_rate")]
    | Annotated[PassRateBandSettings, Tag("pass_rate_band")]
    | Annotated[ValidOnlySettings, Tag("valid_only")],
    Discriminator(_kind),
]

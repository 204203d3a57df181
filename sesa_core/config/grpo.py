"""How rewards become an update of a policy: what they are compared with, and the loss."""

from typing import Literal

from pydantic import Field

from sesa_core.config.section import Section


class GrpoSettings(Section):
    """GRPO through verl's own `core_algos`."""

    clip_low: float = Field(0.2, gt=0, lt=1, description="the probability ratio is clipped below 1 - this")
    clip_high: float = Field(0.285, gt=0, description="the probability ratio is clipped above 1 + this")
    kl_coef: float = Field(0.01, ge=0, description="low-variance KL loss against the initial policy; 0 builds no reference model")
    entropy_coef: float = Field(0.0, ge=0, description="weight of the entropy bonus")
    baseline: Literal["group", "arm"] = Field(
        "arm",
        description="what a solver rollout is compared with: its group, or those of its group that saw cards of the problem as it did",
    )
    proposer_baseline: Literal["group", "running"] = Field(
        "group",
        description="what a question's reward is compared with: those of the same target (GRPO, at least two per target), or the running "
        "mean of all earlier ones (REINFORCE, also for one per target; divided by nothing)",
    )
    proposer_baseline_rate: float = Field(0.1, gt=0, le=1, description="how far the running mean goes towards each step's own mean")
    normalise_by_std: bool = Field(True, description="divide advantages by the group's standard deviation")
    loss_aggregation: Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"] = Field(
        "token-mean", description="how token losses become one number (verl's names); seq-mean-token-sum-norm: Dr. GRPO's"
    )
    loss_scale: int | None = Field(
        None, ge=1, description="the constant that seq-mean-token-sum-norm divides by; empty: rollout.max_context, the longest response"
    )
    mini_batch_rows: int = Field(128, ge=1, description="rows per optimizer step")
    micro_batch_rows: int = Field(8, ge=1, description="rows per forward pass")

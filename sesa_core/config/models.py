"""Every setting of a run, with its meaning, default and bounds. Frozen; unknown keys are refused.

The defaults are those of the `default` behaviour; presets (`config/presets/*.yaml`) change what they name.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from sesa_core.config.grpo import GrpoSettings
from sesa_core.config.proposer_rewards import FrontierRewardSettings, ProposerRewardSettings
from sesa_core.config.section import Section
from sesa_core.errors import ConfigError


class WorldSettings(Section):
    """Where questions, targets and passages come from."""

    kind: Literal["embedded", "files"] = Field(
        "embedded", description="embedded: the world of real facts that ships with SESA; files: a corpus, targets and questions of your own"
    )
    path: str | None = Field(
        None,
        description="embedded: a folder built by `sesa world build`, empty: the shipped files; "
        "files: a folder with corpus.jsonl, targets.jsonl and questions.jsonl",
    )
    fingerprint: str | None = Field(
        None, description="what the world must hold, written down when a run begins; empty: whatever it holds then"
    )


class TargetSettings(Section):
    """Which answers the proposer is asked to build questions for."""

    hops: tuple[Annotated[int, Field(ge=1, le=3)], ...] = Field((1, 2, 3), min_length=1, description="hop counts to draw from")
    sampling: Literal["uniform", "frontier"] = Field(
        "frontier",
        description="frontier: relations and hop counts whose recent pass rate is near one half are drawn more often",
    )


class SearchSettings(Section):
    """The retriever of passages."""

    backend: Literal["lance"] = Field("lance", description="embedded LanceDB full-text index")
    top_k: int = Field(3, ge=1, le=20, description="passages per search")
    index_path: str | None = Field(None, description="where the index lies; empty: in the runs folder, shared by all runs")


class SamplingSettings(Section):
    temperature: float = Field(1.0, ge=0, le=4, description="in training; evaluation is greedy or at 1")
    top_p: float = Field(1.0, gt=0, le=1, description="1: no nucleus cut")
    top_k: int = Field(0, ge=0, description="0: no top-k cut")
    max_new_tokens: int = Field(512, ge=1, description="per assistant turn")


class RolloutSettings(Section):
    """How one game is played."""

    profile: Literal["tiny", "default", "r-search", "qwen", "llama3"] = Field(
        "default",
        description="prompts, how a search is written and how its passages come back: `default` <search> and <information>, `r-search` "
        "<search> and <observation>, `qwen` and `llama3` the tool calls and chat turns of those families, `tiny` the shipped policy's",
    )
    worked_example: bool = Field(False, description="show each role a game that was played well before its own: for small chat models")
    max_searches: int = Field(9, ge=1, le=50, description="searches per trajectory; one more turn is left for the answer")
    max_context: int = Field(8192, ge=64, description="tokens of prompt and response together")
    max_answer_tags: int = Field(1, ge=1, description="more <answer> tags than this score 0")
    answer_check: Literal["exact", "judge"] = Field(
        "exact",
        description="what makes an answer right: exact: it equals a reference, normalised; judge: or the judge says that it means the "
        "same (not for the embedded world; one call for each distinct answer that equals none, those of a verifier too, beside those "
        "about failures)",
    )
    solver: SamplingSettings = SamplingSettings()
    proposer: SamplingSettings = SamplingSettings()


class LoraSettings(Section):
    """Adapters over a frozen model instead of training all of its weights; one per role."""

    rank: int = Field(0, ge=0, description="of the adapters; 0: all weights are trained")
    alpha: float = Field(32.0, gt=0, description="an adapter counts alpha / rank")
    targets: Annotated[tuple[str, ...], Field(min_length=1)] | Literal["all-linear"] = Field(
        "all-linear", description="names of the layers that get one; all-linear: every linear layer but the output head"
    )


class PolicySettings(Section):
    """Both roles start from this one model."""

    path: str = Field("tiny", description="`tiny` (ships with SESA) or a folder or hub name of a Hugging Face causal LM")
    dtype: Literal["fp32", "bf16"] = Field(
        "fp32", description="of the weights that play and of every forward pass; the optimizer's own copy is always fp32"
    )
    lora: LoraSettings = LoraSettings()


class OptimSettings(Section):
    lr: float = Field(1e-6, gt=0, description="learning rate of both policies")
    warmup_steps: int = Field(0, ge=0, description="optimizer steps over which the rate rises")
    final_share: float = Field(
        1.0, gt=0, le=1, description="share of the rate that is left at the last step, reached linearly; 1: constant"
    )
    weight_decay: float = Field(0.0, ge=0, description="of AdamW")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are clipped to this norm")


class EngineSettings(Section):
    """What runs the policies."""

    host: Literal["in_process", "ray"] = Field("in_process", description="in_process: one process; ray: a Ray cluster")
    threads: int = Field(1, ge=1, description="torch threads of a training process")
    slots: int = Field(160, ge=1, description="sequences generated at once")
    recompute: bool = Field(
        False,
        description="in an update, compute each layer twice instead of keeping what it held: a third slower, a fraction of the memory",
    )


class ValidationSettings(Section):
    """What makes a proposer's question a problem."""

    min_chars: int = Field(8, ge=1, description="of a question")
    max_chars: int = Field(400, ge=8, description="of a question")
    min_words: int = Field(3, ge=0, description="0 for languages without spaces")
    max_words: int = Field(80, ge=0, description="0 for languages without spaces")
    near_duplicate_window: int = Field(200, ge=0, le=2000, description="problems that a new question must differ from")
    near_duplicate_threshold: float = Field(0.9, gt=0, le=1, description="token Jaccard at which two questions are the same")
    forbid_target_in_query: bool = Field(False, description="reject a question for which the proposer searched for the target itself")
    verifier: Literal["world", "solver", "judge"] = Field(
        "world",
        description="world: the closed-form world resolves the question; solver, judge: it is answered from evidence and noise, by "
        "the greedy solver or by the judge (two calls at most per question, beside those about failures and, with "
        "rollout.answer_check=judge, about answers)",
    )
    noise_passages: int = Field(
        4, ge=0, description="passages of other trajectories mixed into the evidence, for the solver as many as leave room (solver, judge)"
    )
    closed_book: bool = Field(
        True, description="ask the answerer without any passage too, and reject what it knows by heart as too easy (solver, judge)"
    )
    pool_reset_steps: int = Field(10, ge=1, description="the pool of earlier problems is cleared this often")

    @model_validator(mode="after")
    def _some_length_fits(self) -> "ValidationSettings":
        if self.min_chars > self.max_chars:
            raise ValueError(f"min_chars {self.min_chars} is above max_chars {self.max_chars}: no question would be valid")
        if self.max_words and self.min_words > self.max_words:
            raise ValueError(f"min_words {self.min_words} is above max_words {self.max_words}: no question would be valid")
        return self


class SelfPlaySettings(Section):
    """The size of one step."""

    targets: int = Field(8, ge=1, description="targets per step")
    proposals_per_target: int = Field(
        4, ge=1, description="the proposer's group size; 1 needs grpo.proposer_baseline running, or freeze_proposer"
    )
    problems: int = Field(
        32, ge=1, description="every valid question is played; where a step has fewer than this, problems of earlier steps beside them"
    )
    solver_group: int = Field(8, ge=2, description="rollouts per problem")
    update_order: tuple[Literal["solver", "proposer"], ...] = Field(
        ("solver", "proposer"), description="who learns first in a step; each role once"
    )
    steps_per_segment: int = Field(10, ge=1, description="GRPO steps between two boundaries")
    segments: int = Field(3, ge=1, description="segments of the run")
    freeze_proposer: bool = Field(False, description="the proposer plays but does not learn")

    @model_validator(mode="after")
    def _each_role_once(self) -> "SelfPlaySettings":
        if sorted(self.update_order) != ["proposer", "solver"]:
            raise ValueError(
                f"update_order [{', '.join(self.update_order)}] must name solver and proposer once each; "
                "set freeze_proposer for a proposer that does not learn"
            )
        return self


class BankSettings(Section):
    """The memory."""

    enabled: bool = Field(True, description="show cards in training; false: failures are kept, no card is shown")
    uri: str | None = Field(None, description="a directory or object-store URI; empty: `bank/` in the run's folder")
    embedder: Literal["wordllama"] = Field("wordllama", description="what turns questions and cards into vectors")
    floor: float | None = Field(None, ge=-1, le=1, description="least similarity of a shown card; empty: the embedder's own")
    dedup_threshold: float | None = Field(None, ge=0, le=1, description="empty: the embedder's own")
    top_k: int = Field(3, ge=0, le=10, description="cards per question")
    utility_weight: float = Field(0.0, ge=0, description="weight of a card's shrunk utility in the rank; 0: similarity alone")
    trigger_weight: float = Field(
        0.3,
        ge=0,
        le=2,
        description="a card with a trigger keyword in the question counts as half of this nearer, any other as half farther",
    )
    withhold: Literal["none", "half"] = Field("half", description="half: each card is withheld from half of a group's rollouts")
    decoy_share: float = Field(
        0.4, ge=0, le=1, description="share of the training rollouts without a card that are shown irrelevant cards instead"
    )
    seed_path: str | None = Field("builtin", description="YAML folder of seed cards; `builtin`: the ones that ship; empty: none")
    warm_start_path: str | None = Field(None, description="JSONL of cards to start from")
    max_cards: int = Field(800, ge=1, description="cap of the bank")
    min_uses_to_evict: int = Field(3, ge=1, description="uses before a card can be evicted")
    protected_uses: int = Field(3, ge=0, description="the cap spares cards with fewer uses")
    credit: Literal["uniform", "similarity", "contrastive"] = Field(
        "contrastive",
        description="uniform: each shown card gets its problem's outcome; similarity: by its similarity to the question; "
        "contrastive: the difference between the rollouts that saw it and those that did not",
    )
    eviction: Literal["net_score", "credible_uplift"] = Field(
        "credible_uplift",
        description="net_score: a card that hurt more than it helped leaves; credible_uplift: one that beyond doubt lowers rewards",
    )
    eviction_confidence: float = Field(
        0.97, gt=0.5, lt=1, description="credible_uplift: a card that does no harm stays, for ever, with at least this probability"
    )
    keep_origins: tuple[Literal["seed", "mined"], ...] = Field(
        ("seed",), description="cards of these origins are never evicted, whatever they score; seeds never are"
    )
    card_style: Literal["full", "compact"] = Field("full", description="compact: one line per card, for tiny policies")
    card_tokens: int = Field(600, ge=16, description="token budget of all cards in one prompt")

    @model_validator(mode="after")
    def _harm_can_be_measured(self) -> "BankSettings":
        if self.credit == "contrastive" and self.withhold == "none":
            raise ValueError(
                "credit contrastive compares rollouts with and without a card and needs withhold half; "
                "with withhold none, set credit to uniform or similarity and eviction to net_score"
            )
        if self.eviction == "credible_uplift" and self.credit != "contrastive":
            raise ValueError(
                f"eviction credible_uplift needs credit contrastive, which measures uplift; with credit {self.credit}, set net_score"
            )
        return self


class QueueSettings(Section):
    """Failures waiting for the judge."""

    capacity: int = Field(300, ge=1, description="failures that wait at most; the least informative leaves")
    min_pending: int = Field(20, ge=1, description="fewer pending failures than this are not distilled yet")
    per_boundary: int = Field(30, ge=1, description="judge calls per boundary")
    max_attempts: int = Field(5, ge=1, description="attempts before a failure goes to the dead-letter list")
    long_evidence_words: int = Field(120, ge=1, description="evidence of at least this many words earns the +3 priority")
    frontier_bonus: float = Field(2.0, ge=0, description="priority of a failure at a pass rate of one half; falls to 0 at 0 and 1")
    unsolved_bonus: float = Field(12.0, ge=0, description="priority of a problem that no rollout solved: GRPO learns nothing from it")
    repeat_penalty: float = Field(10.0, ge=0, description="what a failure like one already selected in this pass loses; 0: none")


class JudgeSettings(Section):
    """The LLM that distils failures. The key comes from the environment variable JUDGE_API_KEY, never from here."""

    base_url: str = Field("builtin", description="`builtin`: SESA's own server on loopback; else an OpenAI-compatible URL")
    model: str = Field("sesa-analyst", description="the model's name at the endpoint")
    concurrency: int = Field(8, ge=1, le=256, description="calls in flight")
    timeout_s: float = Field(60.0, gt=0, description="of one call")
    max_tokens: int = Field(1500, ge=64, description="of one reply; doubled for a failure each time that a reply about it was cut")
    most_tokens: int = Field(12_000, ge=64, description="where that doubling ends")
    temperature: float = Field(0.0, ge=0, le=2, description="of the judge")
    requests_per_minute: int | None = Field(None, ge=1, description="calls in any 60 s; null: no limit")
    price_prompt: float = Field(0.0, ge=0, description="of a million prompt tokens, in the currency of cost_budget")
    price_completion: float = Field(0.0, ge=0, description="of a million tokens of replies")
    token_budget: int | None = Field(None, ge=1, description="tokens that the whole run may use; when they are used, failures wait")
    cost_budget: float | None = Field(None, gt=0, description="the same in money; needs prices")
    retries: int = Field(3, ge=0, le=20, description="Prefect retries of one judge call")
    retry_delay_s: float = Field(1.0, ge=0, description="first delay; doubles each time")

    @model_validator(mode="after")
    def _money_has_a_price(self) -> "JudgeSettings":
        if self.cost_budget is not None and not self.price_prompt + self.price_completion:
            raise ValueError(
                f"cost_budget {self.cost_budget:g} needs price_prompt or price_completion: without a price nothing is ever spent"
            )
        return self


class DistillSettings(Section):
    """When failures are judged, and how long a run waits for it."""

    enabled: bool = Field(
        True, description="make cards of failures; false: they are kept, the judge is told of none, and no card comes of them"
    )
    overlap: bool = Field(
        False, description="judge a segment's failures while the next one trains; their cards are admitted one boundary later"
    )
    max_wait_s: float = Field(
        900.0, ge=0, description="a boundary waits so long for its judge calls; then no other is started, and what is missing stays pending"
    )
    give_up_after: int = Field(
        10, ge=1, description="calls in a row without an answer after which the judge is taken for down, also about questions and answers"
    )
    probe_after_s: float = Field(30.0, gt=0, description="how often a judge that is taken for down is tried again")


class HealthSettings(Section):
    """Bounds of what training may come to; null: no alarm. Whatever is beyond its bound for `window` steps in a row is an alarm."""

    window: int = Field(3, ge=1, description="steps in a row beyond a bound until the alarm")
    stop_on: tuple[
        Literal[
            "valid_rate",
            "zero_variance",
            "entropy",
            "kl",
            "finished",
            "repetition",
            "distinct_questions",
            "near_duplicates",
            "dropped",
        ],
        ...,
    ] = Field((), description="alarms that stop the run instead of being shown only")
    least_valid_rate: float | None = Field(0.1, ge=0, le=1, description="share of questions that are valid")
    most_zero_variance: float | None = Field(0.95, ge=0, le=1, description="share of the solver's groups in which all rewards are equal")
    least_entropy: float | None = Field(0.01, ge=0, description="nats per sampled token, of either role")
    most_kl: float | None = Field(1.0, ge=0, description="distance from the first policy per token, where grpo.kl_coef asks for it")
    least_finished: float | None = Field(0.5, ge=0, le=1, description="share of the solver's games that end with an answer")
    most_repetition: float | None = Field(0.5, ge=0, le=1, description="share of runs of four tokens that stood before in the same text")
    least_distinct_questions: float | None = Field(0.3, ge=0, le=1, description="distinct questions among those written in a step")
    most_near_duplicates: float | None = Field(0.5, ge=0, le=1, description="share of questions refused as posed before")
    most_dropped: float | None = Field(0.5, ge=0, le=1, description="share of samples dropped since search or judge failed")


class EvaluationSettings(Section):
    """What is measured before and after a run."""

    split: Literal["dev", "test"] = Field("dev", description="dev serves every choice; test is for the final number")
    questions: int = Field(300, ge=1, description="held-out questions")
    samples: int = Field(4, ge=0, description="rollouts per question at temperature 1; 0: greedy only")
    arms: tuple[Literal["off", "on", "placebo"], ...] = Field(
        ("off", "on", "placebo"), min_length=1, description="the bank off, on, or replaced by as many irrelevant cards; each once"
    )
    every_segments: int = Field(0, ge=0, description="evaluate after every this many segments; 0: only at both ends")

    @model_validator(mode="after")
    def _each_arm_once(self) -> "EvaluationSettings":
        if len(set(self.arms)) < len(self.arms):
            raise ValueError(f"arms [{', '.join(self.arms)}] names an arm twice")
        return self


class RetentionSettings(Section):
    checkpoints: int = Field(2, ge=1, description="boundaries whose checkpoints are kept, beside tagged ones")


class RunConfig(Section):
    """A whole run. `sesa config show` prints it resolved; it is saved with the run as config.yaml."""

    preset: str = Field("quickstart", description="name of the preset that this started from")
    seed: int = Field(0, ge=0, description="every random stream of the run derives from it")
    runs_dir: str = Field("runs", description="folder that holds the runs")
    world: WorldSettings = WorldSettings()
    targets: TargetSettings = TargetSettings()
    search: SearchSettings = SearchSettings()
    policy: PolicySettings = PolicySettings()
    engine: EngineSettings = EngineSettings()
    optim: OptimSettings = OptimSettings()
    grpo: GrpoSettings = GrpoSettings()
    rollout: RolloutSettings = RolloutSettings()
    selfplay: SelfPlaySettings = SelfPlaySettings()
    proposer_reward: ProposerRewardSettings = FrontierRewardSettings()
    validation: ValidationSettings = ValidationSettings()
    bank: BankSettings = BankSettings()
    queue: QueueSettings = QueueSettings()
    judge: JudgeSettings = JudgeSettings()
    distill: DistillSettings = DistillSettings()
    health: HealthSettings = HealthSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    retention: RetentionSettings = RetentionSettings()

    @model_validator(mode="after")
    def _the_proposer_can_learn(self) -> "RunConfig":
        """A ConfigError, not pydantic's: two sections together are wrong, and it names the key."""
        alone = self.selfplay.proposals_per_target == 1 and self.grpo.proposer_baseline == "group"
        if alone and not self.selfplay.freeze_proposer:
            hint = (
                "a group of one leaves nothing to compare a question with, so the proposer would never learn; "
                "give at least 2, or set grpo.proposer_baseline=running, or selfplay.freeze_proposer"
            )
            raise ConfigError("selfplay.proposals_per_target", 1, hint)
        return self

"""Settings: preset <- file <- single keys, refused with the key, the value and what is allowed."""

import pytest

from sesa_core.config.load import config_hash, describe_schema, from_the_root, load_config, presets, save_config
from sesa_core.config.proposer_rewards import FrontierRewardSettings, PassRateBandSettings, ValidOnlySettings
from sesa_core.errors import ConfigError
from sesa_core.training.baselines import GroupBaseline
from sesa_core.training.grpo import ScoredRollout, build_rows
from sesa_core.types import Ending, Role, Trajectory


@pytest.mark.parametrize("name", presets())
def test_every_shipped_preset_is_valid_and_names_itself(name):
    assert load_config(name).preset == name


@pytest.mark.parametrize("name", presets())
def test_every_shipped_preset_lets_both_roles_learn(name):
    """GRPO compares the members of a group: a preset whose groups hold one rollout would train on nothing, for days."""
    config = load_config(name)
    groups = {"solver": config.selfplay.solver_group, "proposer": config.selfplay.proposals_per_target}
    for role, size in groups.items():
        trajectories = [Trajectory(Role(role), "g", i, "", (1,), (2,), (1,), (0.0,), (), Ending.FINISHED) for i in range(size)]
        scored = [ScoredRollout(t, "g", float(i == 0)) for i, t in enumerate(trajectories)]
        assert build_rows(scored, GroupBaseline())[1].rows == size, role
    assert set(config.selfplay.update_order) == {"solver", "proposer"} and not config.selfplay.freeze_proposer
    posed = config.selfplay.targets * config.selfplay.proposals_per_target
    assert posed >= config.selfplay.problems, "the pool fills slots, it does not replace the proposer"


def test_the_paper_is_evaluated_as_published():
    evaluation = load_config("paper").evaluation
    assert (evaluation.split, evaluation.questions, evaluation.samples) == ("test", 500, 0), "greedy, one rollout a question"


def test_the_shipped_presets_are_those_that_are_documented():
    assert presets() == ["laptop-llm", "paper", "quickstart"]


def test_the_quickstart_is_the_default():
    assert load_config() == load_config("quickstart")


def test_a_file_is_laid_over_the_preset_and_single_keys_over_the_file(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("selfplay: {segments: 5, targets: 4}\nseed: 7\n")
    config = load_config("quickstart", file, ["selfplay.segments=9"])
    assert (config.selfplay.segments, config.selfplay.targets, config.seed) == (9, 4, 7)
    assert config.rollout.profile == "tiny", "what the file does not name stays the preset's"


def test_a_file_may_name_its_preset_and_an_argument_wins(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("preset: paper\n")
    assert load_config(file=file).queue.min_pending == 20
    assert load_config("quickstart", file).preset == "quickstart"


@pytest.mark.parametrize("host", ["ray", "in_process"])
def test_engine_is_short_for_the_host(host, tmp_path):
    assert load_config(overrides=[f"engine={host}"]).engine.host == host
    file = tmp_path / "mine.yaml"
    file.write_text(f"engine: {host}\n")
    assert load_config(file=file).engine.host == host


def test_values_are_yaml_with_off_and_on_as_words_and_exponents_as_numbers():
    config = load_config(overrides=["evaluation.arms=[off, on]", "optim.lr=1e-4", "bank.enabled=false", "bank.floor=", "judge.model='1'"])
    assert config.evaluation.arms == ("off", "on")
    assert config.optim.lr == 0.0001
    assert config.bank.enabled is False
    assert config.bank.floor is None
    assert config.judge.model == "1"


def test_lists_are_replaced_not_merged():
    assert load_config(overrides=["targets.hops=[2]"]).targets.hops == (2,)


@pytest.mark.parametrize(
    ("override", "key", "says"),
    [
        ("bank.topk=3", "bank.topk", "did you mean bank.top_k?"),
        ("lr=1", "lr", "did you mean optim.lr?"),
        ("bnk.top_k=1", "bnk", "did you mean bank?"),
        ("engine=rya", "engine.host", "'in_process' or 'ray'"),
        ("selfplay.segments=0", "selfplay.segments", "greater than or equal to 1"),
        ("targets.hops=[4]", "targets.hops.0", "less than or equal to 3"),
        ("evaluation.arms=[of]", "evaluation.arms.0", "'off', 'on' or 'placebo'"),
        ("proposer_reward.extreme_penalty=1", "proposer_reward", "pays better than a hard one"),
        ("proposer_reward.low=3", "proposer_reward.low", "less than or equal to 1"),
        ("proposer_reward.lo=0", "proposer_reward.lo", "did you mean proposer_reward.low?"),
        ("proposer_reward.kind=valid", "proposer_reward.kind", "pass_rate_band, valid_only; did you mean valid_only?"),
        ("proposer_reward.kind=", "proposer_reward.kind", "the kinds are frontier,"),
        ("proposer_reward=valid_only", "proposer_reward", "set proposer_reward.kind"),
        ("optim.lr=.inf", "optim.lr", "finite number"),
        ("selfplay.proposals_per_target=1", "selfplay.proposals_per_target", "or set grpo.proposer_baseline=running, or selfplay.freeze"),
        ("selfplay.update_order=[]", "selfplay", "solver and proposer once each"),
        ("selfplay.update_order=[solver]", "selfplay", "set freeze_proposer"),
        ("selfplay.update_order=[solver, solver]", "selfplay", "solver and proposer once each"),
        ("validation.min_chars=401", "validation", "min_chars 401 is above max_chars 400"),
        ("validation.max_words=2", "validation", "min_words 3 is above max_words 2"),
        ("evaluation.arms=[]", "evaluation.arms", "at least 1"),
        ("policy.lora.targets=q_proj", "policy.lora.targets", "names of the layers that get one; all-linear"),
        ("policy.lora.targets=[]", "policy.lora.targets", "at least 1"),
        ("policy.lora.targets=[q_proj, 3]", "policy.lora.targets.1", "valid string"),
        ("evaluation.arms=[off, off]", "evaluation", "names an arm twice"),
        ("seed", "--set", "key=value"),
        ("seed=[", "seed", "not YAML"),
        ("preset=other", "preset", "paper, quickstart"),
    ],
)
def test_a_wrong_setting_names_the_key_the_value_and_what_is_allowed(override, key, says):
    with pytest.raises(ConfigError, match="is not allowed") as error:
        load_config(overrides=[override]) if not override.startswith("preset") else load_config(override.split("=")[1])
    assert error.value.key == key
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_kind_is_chosen_by_one_key_and_brings_its_own_keys():
    assert load_config(overrides=["proposer_reward.kind=valid_only"]).proposer_reward == ValidOnlySettings()
    assert load_config(overrides=["proposer_reward.high=0.9"]).proposer_reward == FrontierRewardSettings(high=0.9)


@pytest.mark.parametrize("kind_first", [True, False])
def test_a_key_of_another_kind_is_refused_with_the_kind_it_belongs_to(kind_first):
    overrides = ["proposer_reward.kind=valid_only", "proposer_reward.extreme_penalty=0.1"]
    with pytest.raises(ConfigError) as error:
        load_config(overrides=overrides if kind_first else overrides[::-1])
    assert (error.value.key, error.value.value) == ("proposer_reward.extreme_penalty", 0.1)
    said = str(error.value)
    assert said.endswith("; proposer_reward of kind valid_only has kind, invalid_reward; extreme_penalty belongs to kind frontier")


def test_an_earlier_runs_settings_can_be_given_another_kind(tmp_path):
    """The file names every key of the former kind; what both know is kept."""
    former = load_config(overrides=["proposer_reward.extreme_penalty=0.1", "proposer_reward.invalid_reward=-0.2"])
    save_config(former, tmp_path / "config.yaml")
    changed = load_config(file=tmp_path / "config.yaml", overrides=["proposer_reward.kind=pass_rate_band"])
    assert changed.proposer_reward == PassRateBandSettings(invalid_reward=-0.2)
    same = load_config(file=tmp_path / "config.yaml", overrides=["proposer_reward.kind=frontier"])
    assert same == former, "naming the kind that stood changes nothing"


def test_settings_that_only_look_contradictory_are_taken():
    assert load_config(overrides=["selfplay.freeze_proposer=true", "selfplay.proposals_per_target=1"]).selfplay.freeze_proposer
    alone = load_config(overrides=["grpo.proposer_baseline=running", "selfplay.proposals_per_target=1"])
    assert alone.selfplay.proposals_per_target == 1, "compared with earlier steps"
    assert load_config(overrides=["validation.max_words=0"]).validation.max_words == 0, "0 is no bound"
    assert load_config(overrides=["selfplay.update_order=[proposer, solver]"]).selfplay.update_order == ("proposer", "solver")


@pytest.mark.parametrize(("text", "says"), [("- a\n", "key: value"), ("a: [", "not YAML"), (None, "cannot be read")])
def test_a_file_that_holds_no_settings_is_refused(tmp_path, text, says):
    file = tmp_path / "mine.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_config(file=file)


def test_what_was_saved_is_read_back_whole(tmp_path):
    config = load_config("paper", overrides=["evaluation.arms=[off]", "bank.floor=0.25", "world.path=/somewhere"])
    save_config(config, tmp_path / "config.yaml")
    assert load_config(file=tmp_path / "config.yaml") == config
    assert config_hash(config) in (tmp_path / "config.yaml").read_text()
    assert [p.name for p in tmp_path.iterdir()] == ["config.yaml"]


def test_the_hash_follows_the_settings_and_not_the_place():
    assert config_hash(load_config()) == config_hash(load_config(overrides=["runs_dir=/elsewhere"]))
    assert config_hash(load_config()) != config_hash(load_config(overrides=["seed=1"]))


def test_paths_are_named_from_the_root_and_names_are_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for made in ("corpus", "tiny", "builtin"):  # folders of these names do not stand for what ships
        (tmp_path / made).mkdir()
    given = ["world.path=corpus", "policy.path=tiny", "bank.uri=cards", "search.index_path=../index", "bank.warm_start_path=none.jsonl"]
    rooted = from_the_root(load_config(overrides=given))
    assert (rooted.world.path, rooted.bank.uri, rooted.search.index_path) == tuple(
        str(tmp_path.resolve() / name) for name in ("corpus", "cards")
    ) + (str(tmp_path.resolve().parent / "index"),)
    assert (rooted.policy.path, rooted.bank.seed_path, rooted.bank.warm_start_path) == ("tiny", "builtin", "none.jsonl")
    named = load_config(overrides=["policy.path=owner/name", "bank.uri=s3://bucket/bank"])
    assert from_the_root(named) == named
    assert from_the_root(rooted) == rooted


def test_the_schema_describes_every_key():
    keys = {d.key: d for d in describe_schema()}
    assert all(d.description for d in keys.values())
    assert keys["engine.host"].type == "one of in_process, ray"
    assert keys["search.top_k"].type == "int >= 1 <= 20"
    assert keys["bank.floor"].type == "number or empty >= -1 <= 1"
    assert keys["rollout.solver.max_new_tokens"].default == 512
    assert keys["proposer_reward.kind"].type == "one of frontier, one_minus_pass_rate, pass_rate_band, valid_only"
    assert keys["proposer_reward.kind"].default == "frontier"
    assert keys["proposer_reward.high"].description.endswith("(kind frontier)")
    assert not keys["proposer_reward.invalid_reward"].description.endswith(")"), "every kind knows it"

"""From a form to a run: what is refused before a folder is made, and which run a flow run goes on with."""

from pathlib import Path

import pytest

from flows.composition import check, open_bank
from flows.form import TrainForm
from sesa_core.bank.boundary import initialise
from sesa_core.bank.store import BankStore
from sesa_core.config.load import load_config
from sesa_core.errors import ConfigError
from sesa_core.training.run_folder import create_run, runs
from tests.bank_support import card, embedder

NOWHERE = "/nowhere/at/all"


@pytest.fixture
def runs_dir(tmp_path) -> Path:
    return tmp_path / "runs"


def test_a_limit_that_would_not_hold_is_refused_with_the_verifier_that_passes_it_over(runs_dir):
    with pytest.raises(ConfigError, match="judge.requests_per_minute") as refused:
        TrainForm(overrides=["validation.verifier=judge", "judge.requests_per_minute=60"], runs_dir=str(runs_dir)).create()
    assert refused.value.key == "validation.verifier" and not runs_dir.exists()


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        (f"policy.path={NOWHERE}", "policy.path"),
        (f"bank.seed_path={NOWHERE}", "bank.seed_path"),
        (f"bank.warm_start_path={NOWHERE}", "bank.warm_start_path"),
        (f"world.path={NOWHERE}", "world.path"),
        ("judge.model=gpt-5", "judge.model"),
        ("judge.base_url=ftp://judge", "judge.base_url"),
        pytest.param("evaluation.questions=100000", "evaluation.questions", marks=pytest.mark.long),  # draws until nothing new comes
    ],
)
def test_what_cannot_work_is_refused_before_there_is_a_run(setting, key, runs_dir):
    with pytest.raises(ConfigError) as refused:
        TrainForm(overrides=[setting], runs_dir=str(runs_dir)).create()
    assert refused.value.key == key
    assert not runs_dir.exists(), "not even a folder is left behind"


def test_a_password_in_the_judges_address_is_neither_saved_nor_printed(runs_dir):
    with pytest.raises(ConfigError, match="JUDGE_API_KEY") as refused:
        TrainForm(judge_url="https://me:secret@judge.example/v1", runs_dir=str(runs_dir)).create()
    assert "secret" not in str(refused.value) and "me:" not in str(refused.value)
    assert not runs_dir.exists()


def test_the_shipped_settings_pass(runs_dir):
    check(load_config(values={"runs_dir": str(runs_dir)}))
    assert not runs_dir.exists()


@pytest.mark.parametrize("folder", ["2024", "~", "null", "1e3", "runs #7", "a: b", "[x]"])
def test_what_a_person_types_into_a_field_is_text_whatever_yaml_would_read(folder):
    config = TrainForm(runs_dir=folder, judge_url="http://127.0.0.1:1/v1 #x", segments=5).config()
    assert config.runs_dir == folder
    assert config.judge.base_url == "http://127.0.0.1:1/v1 #x"
    assert (config.selfplay.segments, config.rollout.max_searches) == (5, 4), "the field beside it keeps the preset's value"


def test_a_form_that_names_a_run_goes_on_with_it_and_makes_it_if_there_is_none(runs_dir):
    form = TrainForm(name="mine", runs_dir=str(runs_dir), seed=7)
    made = form.claim("train-0")
    assert (made.name, made.config().seed) == ("mine", 7)
    assert form.model_copy(update={"seed": 8}).claim("train-0").config().seed == 7, "a run keeps the settings that it began with"


def test_a_flow_run_without_a_name_finds_its_own_run_again_when_it_is_retried(runs_dir):
    form = TrainForm(runs_dir=str(runs_dir))
    first = form.claim("train-1a2b3c4d")
    assert form.claim("train-1a2b3c4d") == first
    assert form.claim("train-99999999") != first
    assert sorted(r.name for r in runs(runs_dir)) == ["train-1a2b3c4d", "train-99999999"]


def test_the_bank_of_another_run_is_refused(runs_dir, tmp_path):
    uri = tmp_path / "bank"
    form = TrainForm(name="second", runs_dir=str(runs_dir), overrides=[f"bank.uri={uri}"])
    with BankStore.open(uri, embedder=embedder(), run="first") as store:
        initialise(store, [card("anthem")], checkpoints={}, config_hash="x")
    with pytest.raises(ConfigError, match="bank of first"):
        form.create()
    assert not runs_dir.exists()

    own = create_run(form.config(), "first")
    with open_bank(own, own.config(), write=True) as store:
        assert len(store.boundaries()) == 1, "its own bank it may open, wherever it lies"
    with pytest.raises(ConfigError, match="bank of first"):
        open_bank(create_run(form.config(), "third"), form.config(), write=True)

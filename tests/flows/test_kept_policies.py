"""Which segments of a run can still be measured and taken elsewhere: a bank of three segments, of which two kept their checkpoints."""

import sys
from pathlib import Path

import pytest

from flows.cli import main
from flows.composition import require_policies
from sesa_core.bank.boundary import commit_segment, initialise
from sesa_core.bank.store import BankStore
from sesa_core.config.load import load_config, save_config
from sesa_core.errors import ConfigError, UserError
from sesa_core.training.run_folder import RunFolder
from tests.bank_support import card, embedder, segment_commit

ROLES = ("proposer", "solver")


@pytest.fixture
def run(tmp_path) -> RunFolder:
    run = RunFolder(tmp_path / "runs" / "first")
    run.path.mkdir(parents=True)
    save_config(load_config(), run.config_file)
    run.log_file.write_text("what was there\n")
    with BankStore.open(run.path / "bank", embedder=embedder(), run="first") as store:
        initialise(store, [card("climate")], checkpoints={}, config_hash="c")
        for segment in (1, 2, 3):
            paths = {role: Path("segments", f"{segment:05d}", "attempt-1", "checkpoints", role) for role in ROLES}
            named = {role: {"path": str(path), "hash": "h"} for role, path in paths.items()}
            commit_segment(store, segment_commit(segment, checkpoints=named))
            for path in paths.values() if segment > 1 else ():
                (run.path / path).mkdir(parents=True)
    return run


def test_segments_whose_checkpoints_are_there_and_the_start_can_be_measured(run):
    for at in (None, 0, 2, 3):
        require_policies(run, run.config(), at)


@pytest.mark.parametrize(("at", "why"), [(1, "its checkpoints are gone"), (4, "no such segment is committed")])
def test_any_other_is_refused_with_those_that_can(run, at, why):
    with pytest.raises(ConfigError, match=f"--at: {at} is not allowed; {why}; policies are kept of segments 0, 2, 3 "):
        require_policies(run, run.config(), at)


def test_a_run_without_a_boundary_says_how_to_go_on(run):
    with BankStore.open(run.path / "other", embedder=embedder(), run="first"):
        pass
    config = run.config().model_copy(update={"bank": run.config().bank.model_copy(update={"uri": str(run.path / "other")})})
    with pytest.raises(UserError, match="first has no boundary yet; go on with: sesa run --resume --name first"):
        require_policies(run, config, None)


@pytest.mark.parametrize("words", [["eval"], ["eval", "--again"], ["export", "hf", "out"]])
def test_a_refused_command_touches_nothing(run, words, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["sesa", *words, "--at", "1", "--runs-dir", "runs"])
    with pytest.raises(SystemExit) as leave:
        main()
    said = capsys.readouterr()
    assert (leave.value.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "its checkpoints are gone" in said.err
    assert run.log_file.read_text() == "what was there\n" and not Path("out").exists()

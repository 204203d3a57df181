"""What reaches the terminal, and what goes to the log instead: tried in a process of its own, on a real pseudo-terminal too."""

import os
import pty
import subprocess
import sys
from pathlib import Path

CHATTER = """
import os, subprocess, sys, time
from pathlib import Path
from sesa_core.report.pace import Pace, Work
from sesa_core.report.terminal import captured_output, open_display
from sesa_core.training.step import Progress

print("before")
try:
    pace = Pace(Work(2, 0, {}, {"step": 30.4}))
    onto = "stderr" if "onto-stderr" in sys.argv else "stdout"
    with captured_output(Path(sys.argv[1]), onto) as screen, open_display("first", screen, pace) as display:
        print("python chatter")
        print("python warning", file=sys.stderr)
        os.write(2, b"chatter from C\\n")
        subprocess.run(["echo", "chatter of a child"], check=True)
        display.stage("evaluate", "segment 0 of 1")
        display.phase("turn 1")
        if screen.isatty():
            time.sleep(0.6)  # two frames
        display.stage("train", "segment 1")
        display.progress(Progress(1, 1, 1, 2, "solve"))
        display.progress(Progress(1, 1, 1, 2, "step done", {"solver/reward": 0.25}))
        display.note("a line that stays")
        if "fail" in sys.argv:
            raise ValueError("broken")
finally:
    print("after")
"""


def run_chatter(log: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", CHATTER, str(log), *arguments], capture_output=True, text=True)


def test_library_output_goes_to_the_log_and_ours_to_standard_output(tmp_path):
    done = run_chatter(tmp_path / "log.txt")
    assert done.returncode == 0
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "before" and lines[-1] == "after"
    assert [line.partition(" first: ")[2] for line in lines[1:-1]] == [
        "segment 0 of 1, left ~1:00",
        "segment 1, left ~1:00",
        "segment 1/1 step 1/2, solver reward 0.25, left 0:00",
        "a line that stays",
    ]
    log = (tmp_path / "log.txt").read_text().splitlines()
    assert sorted(log) == ["chatter from C", "chatter of a child", "python chatter", "python warning"]


def test_progress_can_go_to_standard_error_where_standard_output_is_for_data(tmp_path):
    done = run_chatter(tmp_path / "log.txt", "onto-stderr")
    assert done.stdout.splitlines() == ["before", "after"]
    assert "a line that stays" in done.stderr
    assert "chatter" not in done.stderr


def test_the_terminal_is_given_back_after_an_error(tmp_path):
    done = run_chatter(tmp_path / "log.txt", "fail")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "after"
    assert "ValueError: broken" in done.stderr


def test_a_terminal_gets_the_live_display(tmp_path):
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", CHATTER, str(tmp_path / "log.txt")], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:  # how a pseudo-terminal ends on Linux
        pass
    finally:
        os.close(ours)
    assert process.wait() == 0
    text = shown.decode()
    assert "segment 0 of 1 · turn 1" in text
    assert "~1:00 left" in text, "before anything was timed"
    assert "segment 1 of 1 · step 1 of 2 · step done" in text
    assert "solver reward" in text and "1/2" in text
    assert "chatter" not in text
    assert text.rstrip().endswith("after")

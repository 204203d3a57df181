"""What a quick command loads, in a fresh process each."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "ray", "verl", "prefect", "lancedb", "transformers", "great_expectations", "openai", "fastapi", "pyarrow", "pandas")


def loaded_by(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*(m for m in sys.modules if '.' not in m))"
    return set(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("module", ["sesa_core.config", "sesa_core.config.load", "sesa_core.types", "sesa_core.errors", "flows.cli"])
def test_import_loads_nothing_heavy(module):
    assert loaded_by(f"import {module}").isdisjoint(HEAVY)


def test_the_command_line_starts_within_a_second():
    """Of processor time, which a busy machine does not stretch."""
    program = "import time, flows.cli; print(time.process_time())"
    times = [float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout) for _ in range(3)]
    assert min(times) < 1.0

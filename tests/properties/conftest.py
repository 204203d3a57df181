"""What the tests that start processes share."""

import multiprocessing
from multiprocessing.context import ForkServerContext

import pytest


@pytest.fixture(scope="session")
def processes() -> ForkServerContext:
    """Processes from a fork server that has imported what is slow, but not LanceDB itself: no thread survives a fork, and it starts one."""
    context = multiprocessing.get_context("forkserver")
    slow = ["great_expectations.expectations", "lance_namespace", "pandas", "pyarrow", "wordllama"]
    context.set_forkserver_preload([*slow, "tests.bank_support"])
    return context

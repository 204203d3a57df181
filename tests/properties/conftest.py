"""What the tests that start processes share."""

import multiprocessing
from multiprocessing.context import ForkServerContext

import pytest


@pytest.fixture(scope="session")
def processes() -> ForkServerContext:
    """Processes from a fork server that has imported what is slow, but not LanceDB itself: it starts a thread, and no thread survives a fork."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["great_expectations.expectations", "lance_namespace", "pandas", "pyarrow", "wordllama", "tests.bank_support"])
    return context

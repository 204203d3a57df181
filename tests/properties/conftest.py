"""What the tests that start processes share."""

import multiprocessing
from multiprocessing.context import ForkServerContext

import pytest


@pytest.fixture(scope="session")
def processes() -> ForkServerContext:
    """Processes from a fork server that has imported what is slow and nothing of LanceDB, whose threads do not survive a fork."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["great_expectations.expectations", "pandas", "wordllama", "tests.bank_support"])
    return context

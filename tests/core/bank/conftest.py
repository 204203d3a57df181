"""A bank that each test may change: a copy of what its file built once as `template`."""

import shutil

import pytest

from sesa_core.bank.bank import Bank
from tests.bank_support import embedder


@pytest.fixture
def bank(template, tmp_path):
    shutil.copytree(template, tmp_path / "bank")
    with Bank.open(tmp_path / "bank", embedder(), by="ada") as opened:
        yield opened

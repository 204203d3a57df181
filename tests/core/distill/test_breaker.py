"""When a judge is taken for down, and how it gets another chance."""

import time

import pytest

from sesa_core.distill.breaker import Breaker
from sesa_core.errors import JudgeResting


def test_after_so_many_calls_without_an_answer_nobody_calls():
    breaker = Breaker(give_up_after=3, probe_after_s=60.0)
    for _ in range(3):
        breaker.require()
        breaker.silent()
    with pytest.raises(JudgeResting, match="3 calls in a row"):
        breaker.require()


def test_an_answer_in_between_begins_the_count_anew():
    breaker = Breaker(give_up_after=2, probe_after_s=60.0)
    breaker.silent()
    breaker.answered()
    breaker.silent()
    breaker.require()


def test_one_call_is_let_through_now_and_then_and_its_answer_lets_all_others_in():
    breaker = Breaker(give_up_after=1, probe_after_s=0.05)
    breaker.silent()
    time.sleep(0.06)
    breaker.require()
    with pytest.raises(JudgeResting):
        breaker.require()
    breaker.answered()
    breaker.require()
    breaker.require()


def test_a_try_that_fails_is_not_repeated_at_once():
    breaker = Breaker(give_up_after=1, probe_after_s=0.05)
    breaker.silent()
    time.sleep(0.06)
    breaker.require()
    breaker.silent()
    with pytest.raises(JudgeResting, match="2 calls in a row"):
        breaker.require()

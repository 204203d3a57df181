"""The proposer's rewards, each a function of how often the solver's group solved the question. Pure.

Invariant: `pass_rate` is a share, refused outside [0, 1]. Edge case: `one_minus_pass_rate` pays most for a question that nobody
solves, so it is only as honest as the verification before it.
"""


def frontier_reward(pass_rate: float, low: float = 0.0, high: float = 1.0, extreme_penalty: float = 0.0) -> float:
    """Frontier shaping (arXiv:2607.29468): -lambda at p = 0 or 1, else 4 (low + p)(high - p), never below 0.

    With five rollouts and the published low = 0, high = 1: .64 .96 .96 .64 for one to four passes.
    """
    _require_share(pass_rate)
    if pass_rate in (0.0, 1.0):
        return -extreme_penalty
    return max(0.0, 4 * (low + pass_rate) * (high - pass_rate))


def one_minus_pass_rate(pass_rate: float) -> float:
    """Search Self-Play's (arXiv:2510.18821): 1 - p, from 0 where all solve the question to 1 where none does."""
    _require_share(pass_rate)
    return 1 - pass_rate


def pass_rate_band(pass_rate: float) -> float:
    """R-Zero's: 1 - 2 |p - 1/2|, from 0 where all or none solve the question to 1 where half do, linear between."""
    _require_share(pass_rate)
    return 1 - 2 * abs(pass_rate - 0.5)


def valid_only(pass_rate: float) -> float:
    """1 for any question that was valid enough to be played."""
    _require_share(pass_rate)
    return 1.0


def _require_share(pass_rate: float) -> None:
    if not 0 <= pass_rate <= 1:
        raise ValueError(f"pass_rate {pass_rate} is outside [0, 1]")

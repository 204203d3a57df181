"""The proposer's reward, a function of how often the solver's group solved the question. Pure."""


def frontier_reward(pass_rate: float, low: float = 0.0, high: float = 1.0, extreme_penalty: float = 0.0) -> float:
    """Frontier shaping (arXiv:2607.29468): -lambda at p = 0 or 1, else 4 (low + p)(high - p), never below 0.

    With five rollouts and the published low = 0, high = 1: .64 .96 .96 .64 for one to four passes.
    """
    if not 0 <= pass_rate <= 1:
        raise ValueError(f"pass_rate {pass_rate} is outside [0, 1]")
    if pass_rate in (0.0, 1.0):
        return -extreme_penalty
    return max(0.0, 4 * (low + pass_rate) * (high - pass_rate))

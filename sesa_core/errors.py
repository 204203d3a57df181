"""Every error that SESA raises on purpose.

SesaError
├── UserError                  a person's mistake: one clear line, exit code 2, no traceback
│   ├── ConfigError            a key, its value and what is allowed
│   ├── MissingRun             no run of that name, or nothing in it to resume
│   └── BankBusy               another process holds the bank's writer lock
├── ServiceError               something outside failed; what happens next is part of the message
│   ├── SearchUnavailable      the rollout drops its sample: never a score
│   ├── JudgeUnavailable       worth another attempt (connection, time-out, 429, 5xx)
│   │   └── JudgeRateLimited
│   ├── JudgeRejected          not worth repeating as it is (bad request, wrong key, unknown model)
│   ├── JudgeNotCalled         no call was made, none is counted; the failure waits
│   │   ├── JudgeBudgetSpent
│   │   ├── JudgeResting       the judge seems to be down and is tried again later
│   │   └── JudgeWaitOver      a boundary has waited long enough for its batch
│   └── JudgeReplyUnusable     a reply came and is kept, but holds no card; the failure stays pending
├── BankError
│   ├── BoundaryConflict       the boundary was committed by somebody else
│   ├── GateFailed             the quality gate stopped the boundary
│   ├── BankIncompatible       another embedder, dimension or a newer schema; a person named that bank, so also a UserError
│   └── BankDamaged            a table cannot be read, or holds what no bank holds; also a UserError
├── EngineError                a policy engine broke (weights, checkpoint, worker)
│   └── CheckpointMismatch     staged files are not those that the boundary names
├── UnhealthyRun               an alarm of `health.stop_on` sounded
└── WorldError                 the world's files are missing or damaged
"""


class SesaError(Exception):
    """Root of the tree."""


class UserError(SesaError):
    """A person's mistake; the command line prints the message alone and exits with 2."""


MISSING = object()  # in place of a value that is not there
UNSET = object()  # in place of the value of what a person has to set and did not


class ConfigError(UserError):
    """A setting is unknown or missing, or its value is not allowed."""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        wrong = f"{key} is not set; {allowed}" if value is UNSET else f"{key}: {value!r} is not allowed; {allowed}"
        super().__init__(f"{key} is missing" if value is MISSING else wrong)
        self.key, self.value, self.allowed = key, value, allowed


class MissingRun(UserError):
    """The named run does not exist or cannot be resumed."""


class BankBusy(UserError):
    """Another process is writing this bank."""


class ServiceError(SesaError):
    """An outside service failed. Never turned into a score."""


class SearchUnavailable(ServiceError):
    """The search backend did not answer; the sample is dropped and counted."""


class JudgeUnavailable(ServiceError):
    """The judge could not be reached or is overloaded; the same call may succeed later."""


class JudgeRateLimited(JudgeUnavailable):
    """The judge asked to be called later (HTTP 429). `retry_after` is in seconds, if it said so."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class JudgeRejected(ServiceError):
    """The judge refuses this request or these credentials; repeating it changes nothing."""


class JudgeNotCalled(ServiceError):
    """No call was made, and the failure is as it was."""


class JudgeBudgetSpent(JudgeNotCalled):
    """The run's budget for judge calls is spent."""


class JudgeResting(JudgeNotCalled):
    """Too many calls in a row had no answer."""


class JudgeWaitOver(JudgeNotCalled):
    """`distill.max_wait_s` is over, or a person has stopped the run."""


class JudgeReplyUnusable(ServiceError):
    """The judge replied, but no card can be read from it. The reply is stored; the failure stays pending, one attempt older."""


class BankError(SesaError):
    """The bank refused or could not do something; what was committed stays as it was."""


class BoundaryConflict(BankError):
    """This boundary id is already taken by another writer."""


class GateFailed(BankError):
    """The quality gate found the whole bank bad, or could not run all its checks."""


class BankIncompatible(BankError, UserError):
    """The bank was written with another embedder, dimension or a newer schema."""


class BankDamaged(BankError, UserError):
    """A table of the bank cannot be read, or holds what no bank holds; trying again changes nothing."""


class EngineError(SesaError):
    """A policy engine failed."""


class CheckpointMismatch(EngineError):
    """Checkpoint files differ from the hashes that were recorded for them."""


class UnhealthyRun(SesaError):
    """Training is not healthy any more, and the settings say that it is to stop then."""


class WorldError(SesaError):
    """The embedded world's files are missing or damaged."""

"""Credit: what the cards of a bank earn at the problems at which they were shown. One rule per file, chosen by `bank.credit`."""

from sesa_core.bank.credit.base import HALF_LIFE_STEPS, Credit, CreditRule, Outcome, apply_uses, credited, outcome, use_key
from sesa_core.bank.credit.contrastive import contrastive
from sesa_core.bank.credit.similarity import similarity
from sesa_core.bank.credit.uniform import uniform

CREDIT_RULES: dict[str, CreditRule] = {"uniform": uniform, "similarity": similarity, "contrastive": contrastive}

__all__ = ["CREDIT_RULES", "HALF_LIFE_STEPS", "Credit", "CreditRule", "Outcome", "apply_uses", "credited", "outcome", "use_key"]

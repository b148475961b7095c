"""How the batches of a transaction are checked when they are appended."""

from cordwood.log.rules.producer_state import VerificationGuard
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRules:
    """How a transactional batch of a client is checked.

    may_begin       the coordinator agreed that a transaction begins in this log
    starts_at_zero  an unknown producer must begin with sequence 0: transactions version 2
    guard           that coordinator is on another broker: it agreed while the log had this guard
    """

    may_begin: bool
    starts_at_zero: bool
    guard: VerificationGuard | None = None

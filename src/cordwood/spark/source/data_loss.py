"""What to do when records that a query should read are gone: `failOnDataLoss`."""

import logging
from dataclasses import dataclass

from cordwood.errors import DataLossError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LossPolicy:
    """Fails the query, or says what is missing and lets it go on."""

    fails: bool

    def report(
        self, topic: str, partition: int | None, what: str, *, cause: Exception | None = None
    ) -> None:
        """Records are gone. Returns only where the query is to go on without them."""
        error = DataLossError(topic, partition, what)
        if self.fails:
            raise error from cause
        logger.warning("reading on, as failOnDataLoss=false: %s", error.args[0])

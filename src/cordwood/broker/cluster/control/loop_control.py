"""The controllers, as the machines of the data loop see them.

The control channel lives in the control loop. Values are read from any thread: each is one
attribute that is replaced. Requests and answers are carried from one loop to the other.
"""

import logging
from collections.abc import Callable
from functools import partial

from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.cluster.cluster_control import ClusterControl, IsrAnswer, IsrChange, IsrOutcome
from cordwood.cluster.image.metadata_image import MetadataImage

logger = logging.getLogger(__name__)


class LoopControl:
    """A `ClusterControl` for the data loop, over that of the control loop.

    `isr_shrinks` and `isr_expands` count the changes that were made.
    """

    def __init__(self, control: ClusterControl, *, home: EventLoop, data: EventLoop) -> None:
        self.isr_shrinks = 0
        self.isr_expands = 0
        self._control = control
        self._home = home
        self._data = data

    @property
    def image(self) -> MetadataImage:
        return self._control.image

    @property
    def broker_epoch(self) -> int:
        return self._control.broker_epoch

    @property
    def is_fenced_by_silence(self) -> bool:
        return self._control.is_fenced_by_silence

    def change_isr(self, change: IsrChange, when_done: Callable[[IsrOutcome], None]) -> None:
        partition = self.image.partition(change.topic_id, change.partition)
        before = 0 if partition is None else len(partition.in_sync)

        def answered(outcome: IsrOutcome) -> None:
            topic = self.image.topics.get(change.topic_id)
            logger.info(
                "%s-%d: the replicas %s in sync in epoch %d: %s",
                change.topic_id if topic is None else topic.name,
                change.partition,
                [replica.node_id for replica in change.in_sync],
                change.leader_epoch,
                outcome.answer.name.lower(),
            )
            if outcome.answer is IsrAnswer.MADE:
                self.isr_shrinks += len(outcome.in_sync) < before
                self.isr_expands += len(outcome.in_sync) > before
            self._data.call_soon(partial(when_done, outcome))

        self._home.call_soon(partial(self._control.change_isr, change, answered))

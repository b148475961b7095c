"""The controllers, as the machines of the data loop see them.

The control channel lives in the control loop. Values are read from any thread: each is one
attribute that is replaced. Requests and answers are carried from one loop to the other.
"""

from collections.abc import Callable
from functools import partial

from cordwood.broker.net.event_loop import EventLoop
from cordwood.cluster.cluster_control import ClusterControl, IsrChange, IsrOutcome
from cordwood.cluster.image.metadata_image import MetadataImage


class LoopControl:
    """A `ClusterControl` for the data loop, over that of the control loop."""

    def __init__(self, control: ClusterControl, *, home: EventLoop, data: EventLoop) -> None:
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
        def answered(outcome: IsrOutcome) -> None:
            self._data.call_soon(partial(when_done, outcome))

        self._home.call_soon(partial(self._control.change_isr, change, answered))

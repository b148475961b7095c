"""Our control channel by itself, as one broker of a cluster, for tests against real controllers.

No data plane: it registers, follows the metadata and sends heartbeats. Its listener is a port on
which nobody listens.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self
from uuid import UUID, uuid4

from cordwood.broker.cluster.control.control_channel import ControlEvents, KraftControl
from cordwood.broker.cluster.control.control_config import ControlConfig, parse_controllers
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.security.peer_tls import peer_tls
from cordwood.cluster.control.broker_lifecycle import Phase, SessionTimes
from cordwood.cluster.control.membership import Membership
from cordwood.cluster.image.broker_image import Endpoint
from cordwood.cluster.image.image_change import ImageChange
from cordwood.cluster.image.metadata_image import MetadataImage
from cordwood.errors import CordwoodError
from cordwood.security.clients.client_security import PLAINTEXT, ClientSecurity

PATIENCE_S = 60.0


class ControlMember:
    """A member on a loop of its own. A context manager; any thread may wait for what it reaches."""

    def __init__(
        self,
        bootstrap: str,
        cluster_id: str,
        *,
        node_id: int = 1,
        previous_epoch: int = -1,
        directories: tuple[UUID, ...] | None = None,
        security: ClientSecurity = PLAINTEXT,
        times: SessionTimes | None = None,
        is_ready: bool = True,
        **member: Any,
    ) -> None:
        self.loop = EventLoop(f"member-{node_id}")
        self.directories = directories or (uuid4(),)
        config = ControlConfig(
            member=Membership(
                node_id=node_id,
                cluster_id=cluster_id,
                incarnation=uuid4(),
                endpoints=(Endpoint("PLAINTEXT", "127.0.0.1", 9, 0),),
                directories=self.directories,
                previous_epoch=previous_epoch,
                **member,
            ),
            bootstrap=parse_controllers("controller.quorum.bootstrap.servers", bootstrap),
            security=security,
            tls=peer_tls("controllers", security),
            times=times or SessionTimes(heartbeat_s=0.5, session_s=4.0),
        )
        self._changed = threading.Condition()
        self.changes: list[ImageChange] = []
        self.phases: list[Phase] = []
        self.failure: CordwoodError | None = None
        events = ControlEvents(
            changed=lambda change: self._note(self.changes.append, change),
            registered=lambda epoch: self._note(lambda _: None, epoch),
            phase=lambda phase: self._note(self.phases.append, phase),
            failed=lambda error: self._note(self._set_failure, error),
        )
        self.control = KraftControl(self.loop, config, events)
        if is_ready:
            self.control.unfence()

    def __enter__(self) -> Self:
        self.loop.start()
        self.loop.call_soon(self.control.start)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Disappear, without a word to the controllers."""
        if self.loop.turns:
            self.loop.call_soon(self.control.stop)
            self.loop.stop()

    def in_loop(self, begin: Callable[[Callable[[Any], None]], None]) -> Any:
        """What a request of the control channel is answered with."""
        found: list[Any] = []

        def done(value: Any) -> None:
            self._note(found.append, value)

        self.loop.call_soon(lambda: begin(done))
        self.wait(lambda: bool(found))
        return found[0]

    def wait(self, condition: Callable[[], bool], what: str = "", *, polls: bool = False) -> None:
        """`polls`: the condition depends on the time, so nothing tells that it holds."""
        deadline_s = time.monotonic() + PATIENCE_S
        reached = False
        with self._changed:
            while not reached and time.monotonic() < deadline_s:
                reached = self._changed.wait_for(
                    lambda: condition() or self.failure is not None, 0.05 if polls else PATIENCE_S
                )
        if self.failure is not None and not condition():
            raise self.failure
        assert reached, what or f"not reached; {self.control.phase}, {self.control.image.end}"

    def wait_for_image(self, holds: Callable[[MetadataImage], Any]) -> MetadataImage:
        self.wait(lambda: bool(holds(self.control.image)), "the image never was as expected")
        return self.control.image

    def wait_until(self, phase: Phase) -> None:
        self.wait(lambda: self.control.phase is phase, f"never {phase}: {self.phases}")

    def wait_until_failed(self) -> CordwoodError:
        self.wait(lambda: self.failure is not None)
        assert self.failure is not None
        return self.failure

    def _set_failure(self, error: CordwoodError) -> None:
        self.failure = error

    def _note(self, act: Callable[[Any], None], value: Any) -> None:
        with self._changed:
            act(value)
            self._changed.notify_all()

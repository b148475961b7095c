"""What a leader knows of one follower: how far it is, and when it was last caught up."""

from cordwood.quantities import NO_OFFSET, Offset


class ReplicaState:
    """One follower. Owned by its `LeaderRole` and called in its loop.

    end            everything below is safe on the follower; -1 until it has fetched
    broker_epoch   the life of the follower's broker that fetched last; -1 until it has
    caught_up_s    the last moment at which it had everything that the leader had

    A follower is caught up at the moment of a fetch from the leader's end. If it fetches from
    where the leader ended at the fetch before, it was caught up then.
    """

    __slots__ = (
        "_leader_end_before",
        "broker_epoch",
        "caught_up_s",
        "end",
        "fetched_s",
        "high_watermark",
        "log_start",
        "node_id",
    )

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.broker_epoch = -1
        self.end = self.log_start = self.high_watermark = NO_OFFSET
        self.fetched_s = self.caught_up_s = float("-inf")
        self._leader_end_before = NO_OFFSET

    def reset(self, *, now_s: float, is_in_sync: bool) -> None:
        """A leadership begins. A replica in the ISR gets the whole time that is allowed."""
        self.end = self._leader_end_before = NO_OFFSET
        self.fetched_s = float("-inf")
        self.caught_up_s = now_s if is_in_sync else float("-inf")

    def note_fetch(
        self, offset: Offset, *, broker_epoch: int, leader_end: Offset, now_s: float
    ) -> bool:
        """It fetched from `offset`; True if it got further."""
        if offset >= leader_end:
            self.caught_up_s = max(self.caught_up_s, now_s)
        elif self._leader_end_before != NO_OFFSET and offset >= self._leader_end_before:
            self.caught_up_s = max(self.caught_up_s, self.fetched_s)
        is_further = offset != self.end
        self.end = offset
        self.broker_epoch = broker_epoch
        self.fetched_s = now_s
        self._leader_end_before = leader_end
        return is_further

    def is_caught_up(self, *, leader_end: Offset, now_s: float, lag_max_ms: int) -> bool:
        return self.end == leader_end or (now_s - self.caught_up_s) * 1000 <= lag_max_ms

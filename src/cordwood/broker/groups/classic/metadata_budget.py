"""How much memory members of classic groups may take with what they join with, all together."""


class MetadataBudget:
    """Counts what is held. For the control loop alone.

    Anyone may join any number of groups, each time with as much as a request holds; so there is
    a limit to the whole. Groups that were saved are restored whatever it is.
    """

    __slots__ = ("_bytes_max", "held_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0

    def has_room_for(self, size: int) -> bool:
        return size <= 0 or self.held_bytes + size <= self._bytes_max

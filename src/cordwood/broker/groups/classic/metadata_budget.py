"""A limit to the memory that the join metadata of all classic groups may take."""


class MetadataBudget:
    """Counts the metadata that groups hold. For the control loop alone.

    A client may join any number of groups, each time with as much metadata as fits a request.
    So the sum is limited. Saved groups are restored even above the limit.
    """

    __slots__ = ("_bytes_max", "held_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0

    def has_room_for(self, size: int) -> bool:
        return size <= 0 or self.held_bytes + size <= self._bytes_max

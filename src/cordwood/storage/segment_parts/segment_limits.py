"""The limits of a segment's indexes, and what its readers may rely on."""

from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLimits:
    """How large indexes grow and how sparse they are."""

    index_bytes_max: int
    index_interval_bytes: int
    is_dense: bool = False  # each batch starts where the one before it ended: never compacted

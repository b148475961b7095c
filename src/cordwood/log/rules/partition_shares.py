"""How the readers of a group share the partitions of a topic. Pure."""

from collections.abc import Mapping, Sequence


def share_partitions(
    readers: Sequence[int], partition_count: int, before: Mapping[int, int]
) -> dict[int, int]:
    """Give each partition to one reader; return {partition: reader}.

    `readers` are numbers in the order in which they came. `before` is the former result; readers
    in it that left are ignored.

    Invariants: every partition has exactly one reader, unless there is none. The shares of two
    readers differ by at most one partition. No result with these shares moves fewer partitions.
    """
    if not readers:
        return {}
    kept: dict[int, list[int]] = {reader: [] for reader in readers}
    for partition in range(partition_count):
        reader = before.get(partition)
        if reader in kept:
            kept[reader].append(partition)
    size, larger = divmod(partition_count, len(readers))
    # Readers that have the most get the larger shares: so they give up the fewest.
    ranked = sorted(readers, key=lambda reader: -len(kept[reader]))
    sizes = {reader: size + (rank < larger) for rank, reader in enumerate(ranked)}
    shares = {partition: reader for reader in ranked for partition in kept[reader][: sizes[reader]]}
    free = (partition for partition in range(partition_count) if partition not in shares)
    missing = [reader for reader in ranked for _ in range(sizes[reader] - len(kept[reader]))]
    return shares | dict(zip(list(free), missing, strict=True))

"""``cordwood roll``: seals the active segments of a topic now."""

from typing import Final

from cordwood.cli.options import AtOption, JsonOption, PartitionsOption, TopicArgument
from cordwood.cli.readable_values import shown_bytes, shown_count
from cordwood.cli.render import Column, output_for

_COLUMNS: Final = (
    Column(name="partition", is_number=True),
    Column(
        name="rolled",
        field="is_rolled",
        show=lambda is_rolled: "yes" if is_rolled else "no, it is empty",
    ),
    Column(name="records", show=shown_count, is_number=True),
    Column(name="bytes", field="sealed_bytes", show=shown_bytes, is_number=True),
    Column(name="active from", field="active_offset", is_number=True),
)


def roll(
    topic: TopicArgument,
    *,
    at: AtOption = None,
    partition: PartitionsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Seal the active segments of a topic now; new records go into new segments.

    Sealed segments can be compacted, archived and deleted. A segment without records stays active.

    \b
    Examples:
      cordwood roll orders
      cordwood roll orders --partition 0
    """
    from cordwood.cli.at.access import open_files
    from cordwood.cli.at.owner_changes import ask_owner
    from cordwood.log.inbox.upkeep_change import RollTopic

    with open_files(at, [topic]) as store:
        found = store.topic(topic)
        for number in partition or ():
            found.partition(number)  # raises if there is no such partition
        paths = store.data_dirs
    change = RollTopic(
        topic=topic,
        topic_id=found.topic_id,
        partitions=tuple(partition) if partition else None,
    )
    answer = ask_owner(paths, change, label=f"rolling {topic}")
    rows = [{"topic": topic, **row} for row in answer.facts["partitions"]]
    output_for(as_json=as_json).table(_COLUMNS, rows)

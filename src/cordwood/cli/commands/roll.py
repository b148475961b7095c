"""``cordwood roll``: sealing the active segments of a topic now."""

from typing import Annotated, Final

import typer

from cordwood.cli.at.target import AtOption
from cordwood.cli.completion_names import PartitionsOption, TopicArgument
from cordwood.cli.readable_values import shown_bytes, shown_count
from cordwood.cli.render import Column, output_for

_COLUMNS: Final = (
    Column(name="partition", is_number=True),
    "rolled",
    Column(name="records", show=shown_count, is_number=True),
    Column(name="bytes", show=shown_bytes, is_number=True),
    Column(name="active from", is_number=True),
)


def roll(
    topic: TopicArgument,
    *,
    at: AtOption = None,
    partition: PartitionsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Seal the active segments of a topic now, so that new records go into new ones.

    What is sealed can be compacted, archived and deleted. A segment without records stays.

    \b
    Examples:
      cordwood roll orders
      cordwood roll orders --partition 0
    """
    from cordwood.cli.at.opened_files import open_files
    from cordwood.cli.at.owner_changes import ask_owner
    from cordwood.log.inbox.upkeep_change import RollTopic

    with open_files(at, [topic]) as store:
        found = store.topic(topic)
        for number in partition or ():
            found.partition(number)
        paths = store.data_dirs
    change = RollTopic(
        topic=topic,
        topic_id=found.topic_id,
        partitions=tuple(partition) if partition else None,
    )
    answer = ask_owner(paths, change, label=f"rolling {topic}")
    rows = [{"topic": topic, **row} for row in answer.facts["partitions"]]
    output = output_for(as_json=as_json)
    if as_json:
        output.table((), rows)
        return
    output.table(
        _COLUMNS,
        [
            {
                **row,
                "rolled": "yes" if row["is_rolled"] else "no, it is empty",
                "bytes": row["sealed_bytes"],
                "active from": row["active_offset"],
            }
            for row in rows
        ],
    )

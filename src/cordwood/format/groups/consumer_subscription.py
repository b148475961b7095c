"""The topics in the subscription with which a consumer joins a classic group.

    int16    version      0 and up; all have the following fields
    int32    topic count
    2 + n    topic        for each, int16 length, UTF-8
    ...                   user data, owned partitions, generation, rack

Only the topics matter to the broker.
"""

from cordwood.errors import FormatError
from cordwood.format.groups.group_fields import FieldReader


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics; None for bytes that are not a subscription: clients may send anything."""
    fields = FieldReader(metadata)
    try:
        if fields.int16("version") < 0:
            return None
        count = fields.array_length("topics")
        return frozenset(fields.string("topic") for _ in range(count))
    except FormatError:
        return None

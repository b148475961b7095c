"""The topics in what a consumer joins a classic group with.

    int16    version      0 and up; what follows is the same in all of them
    int32    topic count
    2 + n    topic        for each, int16 length, UTF-8
    ...                   user data, owned partitions, generation, rack

All but the topics is the clients' own business.
"""

from cordwood.errors import FormatError
from cordwood.format.groups.group_fields import FieldReader


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """None for bytes that are not a subscription: clients may join with anything."""
    fields = FieldReader(metadata)
    try:
        if fields.int16("version") < 0:
            return None
        count = fields.array_length("topics")
        return frozenset(fields.string("topic") for _ in range(count))
    except FormatError:
        return None

"""The facts of a segment, as an object and as the words of a kernel."""

from cordwood.format import kernel_tables as tables
from cordwood.quantities import NO_TIMESTAMP, Offset, TimestampMs
from cordwood.storage.log_file.segment_facts import NOT_SEEN, SegmentFacts


def test_new_facts_are_those_before_the_first_batch() -> None:
    words = SegmentFacts().words()

    assert words[tables.S_FIRST_TIMESTAMP] == NOT_SEEN
    assert words[tables.S_MAX_TIMESTAMP] == NO_TIMESTAMP
    assert words[tables.S_INDEXED_TIMESTAMP] == NO_TIMESTAMP
    assert words[tables.S_UNINDEXED] == words[tables.S_RECORD_COUNT] == 0


def test_facts_go_to_words_and_back_unchanged() -> None:
    facts = SegmentFacts()
    facts.unindexed_bytes = 1
    facts.max_timestamp = TimestampMs(2)
    facts.max_timestamp_offset = Offset(3)
    facts.indexed_timestamp = TimestampMs(4)
    facts.record_count = 5
    facts.first_timestamp = TimestampMs(6)

    back = SegmentFacts.of_words(facts.words())

    assert [getattr(back, name) for name in SegmentFacts.__slots__] == [
        getattr(facts, name) for name in SegmentFacts.__slots__
    ]

"""The batches in a Fetch response: checked and parsed."""

from collections.abc import Iterator

from cordwood.errors import ChecksumMismatchError, FormatError
from cordwood.format import kernel_tables as tables
from cordwood.format.batch import DAMAGE_STOPS, BatchDecoder, RecordRun, describe_stop
from cordwood.quantities import INT64_MAX

_CUT_SHORT = frozenset({tables.STOP_SHORT_HEADER, tables.STOP_SHORT_BATCH})


class FetchedBatches:
    """Whole batches at the start of `data`; an incomplete one at the end is left out.

    `next_offset` is where the next fetch begins: behind the last batch that was returned, which
    may be empty.
    """

    def __init__(self, data: memoryview, start: int, decoder: BatchDecoder | None = None) -> None:
        self.next_offset = start
        self._data = data
        self._start = start
        self._decoder = decoder or BatchDecoder()

    def runs(self, *, stop: int = INT64_MAX) -> Iterator[RecordRun]:
        """The records in [start, stop) without control records. A run is valid until the next."""
        decoder, position = self._decoder, 0
        while position < len(self._data):
            count = decoder.scan(self._data, position, len(self._data), stop_offset=stop)
            if decoder.sound_count() < count:
                self._raise_checksum(count)
            if count:
                yield from decoder.runs(0, count, start_offset=self._start, stop_offset=stop)
                reached = decoder.field(count - 1, tables.B_NEXT_OFFSET)
                self.next_offset = max(self.next_offset, min(reached, stop))
            position = decoder.position
            if decoder.stop == tables.STOP_OFFSET:
                self.next_offset = stop
            if decoder.stop in _CUT_SHORT or decoder.stop == tables.STOP_OFFSET:
                return
            if decoder.stop in DAMAGE_STOPS:
                raise FormatError(describe_stop(decoder.stop), position=position)

    def _raise_checksum(self, count: int) -> None:
        for index in range(count):
            self._decoder.check_checksum(index)
        raise ChecksumMismatchError(stored=0, computed=0)  # not reached: one of them is wrong

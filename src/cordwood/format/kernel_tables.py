"""The columns of the tables that kernels exchange, and the codes that kernels return.

A table is a flat array of int64, one row after another; a column is the position in a row.
"""

from typing import Final

# A row of the batch table.
BATCH_ROW: Final = 14
B_POSITION: Final = 0
B_SIZE: Final = 1
B_BASE_OFFSET: Final = 2
B_NEXT_OFFSET: Final = 3
B_MAX_TIMESTAMP: Final = 4
B_ATTRIBUTES: Final = 5
B_RECORD_COUNT: Final = 6
B_BASE_TIMESTAMP: Final = 7
B_CRC: Final = 8
B_PRODUCER_ID: Final = 9
B_PRODUCER_EPOCH: Final = 10
B_BASE_SEQUENCE: Final = 11
B_LEADER_EPOCH: Final = 12
B_LAST_OFFSET_DELTA: Final = 13

# A row of the record table. A size of -1 is a null.
RECORD_ROW: Final = 8
R_OFFSET: Final = 0
R_TIMESTAMP: Final = 1
R_KEY_POSITION: Final = 2
R_KEY_SIZE: Final = 3
R_VALUE_POSITION: Final = 4
R_VALUE_SIZE: Final = 5
R_HEADERS_POSITION: Final = 6
R_HEADER_COUNT: Final = 7

# Why a walk over batches stopped.
STOP_END: Final = 0  # exactly at the end of the input
STOP_FULL: Final = 1  # no more rows in the table
STOP_OFFSET: Final = 2  # the next batch starts at or after the requested offset
STOP_SHORT_HEADER: Final = 3  # the input ends inside a header
STOP_SHORT_BATCH: Final = 4  # the input ends inside a batch
STOP_BAD_SIZE: Final = 5
STOP_BAD_MAGIC: Final = 6
STOP_BAD_OFFSET: Final = 7  # offsets decrease, or are out of range
STOP_BAD_COUNT: Final = 8

# What is wrong with a record.
RECORDS_OK: Final = 0
BAD_VARINT: Final = 1
BAD_RECORD_SIZE: Final = 2
BAD_KEY_SIZE: Final = 3
BAD_VALUE_SIZE: Final = 4
BAD_HEADER_COUNT: Final = 5
BAD_HEADER_SIZE: Final = 6
BAD_BODY: Final = 7  # the fields do not fill the declared size exactly
BAD_TRAILER: Final = 8  # bytes left after the declared number of records
BAD_OFFSET_DELTA: Final = 9
TOO_FEW_RECORDS: Final = 10  # the input ends before the declared number of records

# The state of a walk over a segment, for `index_batches`.
STATE_WORDS: Final = 6
S_UNINDEXED: Final = 0  # bytes since the last index entry
S_MAX_TIMESTAMP: Final = 1
S_MAX_TIMESTAMP_OFFSET: Final = 2
S_INDEXED_TIMESTAMP: Final = 3  # of the last time index entry
S_RECORD_COUNT: Final = 4
S_FIRST_TIMESTAMP: Final = 5  # of the first batch; -2 before the first batch

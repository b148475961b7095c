# The numbers of kernel_tables.py as C constants; tests/unit/test_primitives.py compares them.

cdef enum:
    # A row of the batch table.
    BATCH_ROW = 14
    B_POSITION = 0
    B_SIZE = 1
    B_BASE_OFFSET = 2
    B_NEXT_OFFSET = 3
    B_MAX_TIMESTAMP = 4
    B_ATTRIBUTES = 5
    B_RECORD_COUNT = 6
    B_BASE_TIMESTAMP = 7
    B_CRC = 8
    B_PRODUCER_ID = 9
    B_PRODUCER_EPOCH = 10
    B_BASE_SEQUENCE = 11
    B_LEADER_EPOCH = 12
    B_LAST_OFFSET_DELTA = 13
    # A row of the record table. A size of -1 is a null.
    RECORD_ROW = 8
    R_OFFSET = 0
    R_TIMESTAMP = 1
    R_KEY_POSITION = 2
    R_KEY_SIZE = 3
    R_VALUE_POSITION = 4
    R_VALUE_SIZE = 5
    R_HEADERS_POSITION = 6
    R_HEADER_COUNT = 7
    # Why a walk over batches stopped.
    STOP_END = 0
    STOP_FULL = 1
    STOP_OFFSET = 2
    STOP_SHORT_HEADER = 3
    STOP_SHORT_BATCH = 4
    STOP_BAD_SIZE = 5
    STOP_BAD_MAGIC = 6
    STOP_BAD_OFFSET = 7
    STOP_BAD_COUNT = 8
    # What is wrong with a record.
    RECORDS_OK = 0
    BAD_VARINT = 1
    BAD_RECORD_SIZE = 2
    BAD_KEY_SIZE = 3
    BAD_VALUE_SIZE = 4
    BAD_HEADER_COUNT = 5
    BAD_HEADER_SIZE = 6
    BAD_BODY = 7
    BAD_TRAILER = 8
    BAD_OFFSET_DELTA = 9
    TOO_FEW_RECORDS = 10
    # The state of a walk over a segment, for `index_batches`.
    STATE_WORDS = 6
    S_UNINDEXED = 0
    S_MAX_TIMESTAMP = 1
    S_MAX_TIMESTAMP_OFFSET = 2
    S_INDEXED_TIMESTAMP = 3
    S_RECORD_COUNT = 4
    S_FIRST_TIMESTAMP = 5

from array import array

from cordwood.format.kernels import Buffer

def key_hash(key: Buffer) -> int: ...
def collect_keys(
    data: Buffer,
    table: array[int],
    start_row: int,
    end_row: int,
    rows: array[int],
    first_batch: int,
    batch_count: int,
    chunk_position: int,
    low: int,
    high: int,
    hashes: array[int],
    positions: array[int],
    count: int,
) -> tuple[int, int]: ...
def sort_keys(
    hashes: array[int],
    positions: array[int],
    count: int,
    spare_hashes: array[int],
    spare_positions: array[int],
) -> None: ...
def put_entries(hashes: array[int], positions: array[int], count: int, out: Buffer) -> int: ...
def first_entry_at(entries: Buffer, start: int, count: int, value: int) -> int: ...
def last_note_of(hashes: array[int], count: int, value: int) -> int: ...

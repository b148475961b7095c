"""Checksums of small batches: what kernels compute is what the package `crc32c` computes."""

import pytest

from cordwood.checksums import crc32c
from cordwood.format import record_scan
from cordwood.format.batch import BatchDecoder
from cordwood.format.batch_header import CRC_START
from cordwood.format.record_encoding import encode_sole
from cordwood.quantities import INT32_MAX

CRC_AT = 17
# Around every length of a step, and around the sizes from which the package is called.
SIZES = [*range(40), 55, 63, 64, 65, 190, 256, 1000, 1024, 1977, 1978, 2048, 4000, 4025, 4096, 5000]


def batch_of(size: int) -> bytearray:
    value = bytes((7 * number + size) % 251 for number in range(size))
    batch = encode_sole(value, None, (), 5, 5, 0, INT32_MAX, crc32c)
    assert isinstance(batch, bytearray)
    return batch


def is_sound(batch: bytearray) -> bool:
    decoder = BatchDecoder()
    decoder.scan(memoryview(batch), 0, len(batch))
    assert decoder.count == 1
    return decoder.sound_count() == 1


def is_surveyed(batch: bytearray) -> bool:
    view = memoryview(batch)
    return record_scan.survey_produced(view, 0, len(view), 0, 10, False) is not None


@pytest.mark.parametrize("size", SIZES)
def test_an_encoded_batch_has_the_checksum_of_the_package(size: int) -> None:
    batch = batch_of(size)

    stored = int.from_bytes(batch[CRC_AT : CRC_AT + 4], "big")

    assert stored == crc32c(memoryview(batch)[CRC_START:])


@pytest.mark.parametrize("size", SIZES)
def test_a_sound_batch_is_taken_and_one_with_another_bit_is_not(size: int) -> None:
    batch = batch_of(size)
    sound = is_sound(batch), is_surveyed(batch)
    batch[-2] ^= 1  # of the value or its size

    assert sound == (True, True)
    assert (is_sound(batch), is_surveyed(batch)) == (False, False)

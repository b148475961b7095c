import pytest

from cordwood.log.partition.partition_log import PartitionLog
from fakes.numbered_log import fill, make


@pytest.fixture
def log() -> PartitionLog:
    """Twenty records, four to a segment."""
    return fill(make()[1], 20)

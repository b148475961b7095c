from __future__ import annotations

import os
import sys

import pytest

from bench.process_tree import descendants_cpu_seconds, tree_cpu_seconds, tree_resident_mb

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")

_NOBODY = 2**30  # above what a process id can be


def test_this_process_has_used_processor_time_and_memory() -> None:
    cpu_s, resident_mb = tree_cpu_seconds(os.getpid()), tree_resident_mb(os.getpid())

    assert cpu_s is not None
    assert cpu_s > 0
    assert resident_mb is not None
    assert resident_mb > 1


def test_a_process_that_is_not_there_has_nothing_to_tell() -> None:
    assert tree_cpu_seconds(_NOBODY) is None
    assert tree_resident_mb(_NOBODY) is None
    assert descendants_cpu_seconds(_NOBODY) == 0

"""Servers run on one core, clients on another."""

import os

import pytest

from bench.pinning import choose_cores, client_pinned


def test_a_second_stage_gives_servers_their_own_core_although_the_first_pinned_the_client() -> None:
    first = choose_cores()
    if first is None:
        pytest.skip("needs taskset and two cores")
    with client_pinned(first):
        assert os.sched_getaffinity(0) == {first.client}
        assert choose_cores() == first

"""Every parser on sound input, on what once brought one down, and on a few changes of both.

`script/fuzz` goes on from here.
"""

from __future__ import annotations

from random import Random

import pytest

from fuzz.driver import corpus_of
from fuzz.mutations import mutate
from fuzz.target import TARGETS

pytestmark = pytest.mark.kernels

CHANGES = 150


@pytest.mark.parametrize("name", TARGETS)
def test_sound_input_is_accepted(name: str) -> None:
    target = TARGETS[name]

    for data in target.seeds:
        target.run(data)


@pytest.mark.parametrize("name", TARGETS)
def test_what_once_failed_is_refused_or_read(name: str) -> None:
    target = TARGETS[name]

    for data in corpus_of(target):
        target(data)


@pytest.mark.parametrize("name", TARGETS)
def test_changed_input_is_refused_or_read(name: str) -> None:
    target = TARGETS[name]
    rng = Random(name)
    pool = [*target.seeds, *corpus_of(target)]

    for _ in range(CHANGES):
        target(mutate(rng, pool))

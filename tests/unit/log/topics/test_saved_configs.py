"""Settings that were made while a broker ran, in every data directory."""

from random import Random

import pytest

from cordwood.errors import ConfigError
from cordwood.log.topics.saved_configs import CONFIGS_FILE, SavedConfigs
from cordwood.quantities import MIB
from fakes.simulated_fs import SimulatedFileSystem

DIRECTORIES = ["/one", "/two"]


@pytest.fixture
def fs() -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    for directory in DIRECTORIES:
        fs.make_directory(directory)
        fs.sync_directory("/")
    return fs


def test_settings_are_durable_and_read_again(fs: SimulatedFileSystem) -> None:
    saved = SavedConfigs(fs, DIRECTORIES)
    saved.put("broker", "", {"a": "1"})
    saved.put("group", "ü", {"b": "2"})
    fs = fs.crash(Random(1))

    again = SavedConfigs(fs, DIRECTORIES)

    assert again.of("broker", "") == {"a": "1"}
    assert again.of("group", "ü") == {"b": "2"}
    assert again.names("group") == ["ü"]
    assert again.of("group", "none") == {}


def test_an_owner_without_settings_is_forgotten(fs: SimulatedFileSystem) -> None:
    saved = SavedConfigs(fs, DIRECTORIES)
    saved.put("group", "g", {"a": "1"})

    saved.put("group", "g", {})

    assert saved.names("group") == []
    assert SavedConfigs(fs, DIRECTORIES).names("group") == []


def test_settings_that_could_not_be_read_again_are_refused(fs: SimulatedFileSystem) -> None:
    saved = SavedConfigs(fs, DIRECTORIES)
    saved.put("broker", "", {"a": "1"})

    with pytest.raises(ConfigError, match="16777216 bytes"):
        saved.put("group", "g" * 16 * MIB, {"a": "1"})

    assert saved.names("group") == []
    assert SavedConfigs(fs, DIRECTORIES).of("broker", "") == {"a": "1"}


def test_the_newest_sound_copy_counts(fs: SimulatedFileSystem) -> None:
    SavedConfigs(fs, DIRECTORIES[:1]).put("broker", "", {"a": "old"})
    newest = SavedConfigs(fs, DIRECTORIES)
    newest.put("broker", "", {"a": "newer"})
    SavedConfigs(fs, DIRECTORIES[1:]).put("broker", "", {"a": "newest"})

    assert SavedConfigs(fs, DIRECTORIES).of("broker", "") == {"a": "newest"}


@pytest.mark.parametrize("content", [b"", b"nonsense", b"cordwood-configs 1 5 00000000\n{}"])
def test_a_damaged_copy_is_ignored(fs: SimulatedFileSystem, content: bytes) -> None:
    SavedConfigs(fs, DIRECTORIES).put("broker", "", {"a": "1"})
    file = fs.create(f"/one/{CONFIGS_FILE}", exclusive=False)
    file.write_at(0, content)
    file.close()

    assert SavedConfigs(fs, DIRECTORIES).of("broker", "") == {"a": "1"}


def test_what_could_not_be_saved_anywhere_is_not_set(fs: SimulatedFileSystem) -> None:
    saved = SavedConfigs(fs, DIRECTORIES[:1])
    fs.fail_next("create", OSError(5, "Input/output error"))

    with pytest.raises(OSError, match="Input/output"):
        saved.put("broker", "", {"a": "1"})

    assert saved.of("broker", "") == {}

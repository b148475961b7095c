"""Changing quotas through the protocol while the disk fails."""

import errno

from cordwood.broker.handlers.client_quotas import ClientQuotasHandler
from cordwood.protocol.api_catalog import ApiKey
from cordwood.security.security_file import SecurityFile
from fakes.handler_calls import HandlerCalls
from fakes.simulated_fs import SimulatedFileSystem


def test_a_full_disk_is_an_answer_and_changes_no_quota() -> None:
    fs = SimulatedFileSystem()
    fs.make_directory("data")
    file = SecurityFile(fs, ["data"])
    call = HandlerCalls([ClientQuotasHandler(file)])
    op = {"key": "producer_byte_rate", "value": 1.0, "remove": False}
    sound, unknown = (
        {"entity": [{"entity_type": kind, "entity_name": "alice"}], "ops": [op]}
        for kind in ("user", "planet")
    )
    fs.fail_next("create", OSError(errno.ENOSPC, "No space left on device"))

    answer = call(ApiKey.ALTER_CLIENT_QUOTAS, {"entries": [sound, unknown], "validate_only": False})

    full, refused = answer.entries
    assert full.error_code == 56  # KAFKA_STORAGE_ERROR
    assert refused.error_code not in (0, 56)
    assert file.state.quotas == {}

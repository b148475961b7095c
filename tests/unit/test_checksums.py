import os
import subprocess
import sys
from pathlib import Path

import crc32c as package

from cordwood.checksums import crc32c


def test_the_checksum_is_that_of_the_package() -> None:
    data = os.urandom(1000)

    assert crc32c(b"123456789") == 0xE3069283, "the check value of CRC-32C"
    assert crc32c(data) == package.crc32c(data)
    assert crc32c(data[500:], crc32c(data[:500])) == crc32c(data)
    assert crc32c(memoryview(data)[3:]) == package.crc32c(data[3:])


def test_the_package_is_imported_if_it_has_another_form(tmp_path: Path) -> None:
    (tmp_path / "crc32c.py").write_text("def crc32c(data, value=0): return 42\n")
    program = "from cordwood.checksums import crc32c; print(crc32c(b''))"

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "42\n"

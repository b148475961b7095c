"""Run failed tests a second time, alone, if a program that is not ours takes part in them.

    python build_support/second_look.py FAILURES -- ARGUMENTS OF PYTEST

FAILURES is the file that `pytest --failures-to FAILURES` wrote: one test a line.

Tests of clients, browsers, JVMs and killed processes wait for programs that we do not schedule. If
a shared machine stands still for seconds, a time limit inside such a program can expire. So up to
three failed tests of these folders run again, alone. They must pass, and the end of the run names
them: a test that fails only under load is a bug to find. A failure anywhere else counts at once.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOREIGN_PROGRAMS = (
    "tests/wire/",
    "tests/spark/",
    "tests/console/",
    "tests/crash/",
    "tests/interop/",
    "tests/s3/",
)
AT_MOST = 3


def reason_against(failures: Sequence[str]) -> str | None:
    """Why these failures are final; None if they may be tried again."""
    if not failures:
        return "the run failed, but no test did"
    strict = [name for name in failures if not name.startswith(FOREIGN_PROGRAMS)]
    if strict:
        return f"{strict[0]} depends on no other program"
    if len(failures) > AT_MOST:
        return f"{len(failures)} tests failed, and at most {AT_MOST} are tried again"
    return None


def main(arguments: Sequence[str]) -> int:
    failures_file, _, *for_pytest = arguments
    failures = Path(failures_file).read_text().splitlines()
    reason = reason_against(failures)
    if reason is not None:
        print(f"no second look: {reason}", file=sys.stderr)
        return 1
    print(f"== second look: {len(failures)} failed tests, alone ==", flush=True)
    # A file of arguments, one a line: names of tests may contain any character.
    status = subprocess.run(
        [sys.executable, "-m", "pytest", *for_pytest, f"@{failures_file}"], cwd=ROOT, check=False
    ).returncode
    if status == 0:
        print("UNSTEADY, failed beside other tests and passed alone:")
        print("\n".join(f"  {name}" for name in failures), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

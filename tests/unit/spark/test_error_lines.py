"""Of a hundred lines that Spark prints, the one to read."""

import sys

import pytest

from cordwood.spark.error_lines import explain

TRACE = """[STREAM_FAILED] Query [id = 1] terminated with exception: An exception was thrown
Traceback (most recent call last):
  File "worker.py", line 1, in main
cordwood.errors.DataLossError: orders-0: offsets from 3 to 9 were deleted

The above exception was the direct cause of the following exception:

  at org.apache.spark.Task.run(Task.scala:1)
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TRACE, "orders-0: offsets from 3 to 9 were deleted"),
        ("ValueError: first\n\nRuntimeError: last\n  at x.Y", "last"),
        ("\n  [TABLE_NOT_FOUND] no table\nJVM stacktrace", "[TABLE_NOT_FOUND] no table"),
        ("x\nModuleNotFoundError: No module named 'pyarrow'", "does not have pyarrow"),
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: cordwood.", "in each thread"),
        ('[UNSUPPORTED_DATA_SOURCE_SAVE_MODE] "cordwood" cannot', '.mode("append")'),
        ("[PYTHON_VERSION_MISMATCH] 3.9", sys.executable),
        ("Python worker exited unexpectedly (crashed)", "memoryOverhead"),
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited", "Java 17"),
        ("", "RuntimeError"),
    ],
)
def test_the_line_names_the_cause_and_what_to_do(text: str, said: str) -> None:
    line = explain(RuntimeError(text))

    assert said in line
    assert "\n" not in line

"""One line that says what went wrong in Spark, and what to do about it.

Spark wraps an error of a Python worker into a Java exception, that into another, and all of them
with their traces into one text of a hundred lines. The line that helps is near its end, or it is
about a cause that Spark does not know: another Python, a session of another thread.
"""

import re
import sys
from typing import Final

# A line of a Python traceback that names an error, with or without its module.
_CAUSE: Final = re.compile(r"\s*(?:[a-z_]\w*\.)*([A-Z]\w*(?:Error|Exception)): (.+)")
_LINES_MAX: Final = 20_000
_OWN_PYTHON: Final = (
    "Spark's workers run another Python, which does not have {what}. Start the session with "
    "cordwood.spark.session(), or call cordwood.spark.register(spark); on a cluster set "
    "PYSPARK_PYTHON, before the session starts, to a Python that has it, such as {python} here"
)
_HINTS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"No module named '(?P<what>[\w.]+)'"), _OWN_PYTHON),
    (
        re.compile(r"PYTHON_VERSION_MISMATCH|Python in worker has different version"),
        "the workers' Python has another version than this one ({python}): set PYSPARK_PYTHON to "
        "the same, before the session starts",
    ),
    (
        re.compile(r"DATA_SOURCE_NOT_FOUND.*cordwood", re.DOTALL),
        'Spark does not find format("cordwood"): it looks in the session of this thread, and in '
        "the Python of its workers. Call cordwood.spark.session() in each thread that writes, or "
        "cordwood.spark.register(spark)",
    ),
    (
        re.compile(r"UNSUPPORTED_DATA_SOURCE_SAVE_MODE"),
        'a log is only appended to: write .mode("append") before save()',
    ),
    (
        re.compile(r"Python worker exited unexpectedly|exit code 137|OOMKilled"),
        "a Python worker was killed, usually because its machine ran out of memory: give "
        "executors more room outside of the JVM (spark.executor.memoryOverhead), or use smaller "
        "tasks (maxBytesPerPartition)",
    ),
    (
        re.compile(r"JAVA_GATEWAY_EXITED|Java gateway process exited"),
        "Spark could not start Java: it needs Java 17 or newer, in JAVA_HOME or in PATH, or "
        "pip install 'cordwood[spark]', which brings one",
    ),
)


def explain(error: BaseException) -> str:
    """The one line to read first of an error that Spark raised.

    An error of ours, or of other Python code in a worker, is that error's own message. For errors
    whose cause Spark does not name, it says the cause and the remedy. The error itself has the
    whole trace.
    """
    text = str(error)
    lines = text.splitlines()[:_LINES_MAX]
    causes = [found for line in lines if (found := _CAUSE.fullmatch(line)) is not None]
    for pattern, hint in _HINTS:
        found = pattern.search(text)
        if found is not None:
            what = found.groupdict().get("what", "it")
            return hint.format(what=what, python=sys.executable)
    if causes:
        return causes[-1][2]
    return next((line.strip() for line in lines if line.strip()), type(error).__name__)

"""What Spark needs to find our data source: a Python that has it, and a session in the thread.

Spark starts `python3` from PATH unless PYSPARK_PYTHON names another. In an environment that was
not activated, that is a Python without Cordwood: queries fail with DATA_SOURCE_NOT_FOUND or with
`No module named ...`. And a write looks only into the session that is active in its thread, which
a new thread does not have.
"""

import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_VARIABLE: Final = "PYSPARK_PYTHON"
_SETTING: Final = "spark.pyspark.python"


def use_this_python(spark: "SparkSession") -> bool:
    """Let workers on this machine use this process's Python. Return whether that was needed.

    A Python that was chosen, by PYSPARK_PYTHON or `spark.pyspark.python`, stays. A session on a
    cluster is not changed either: this process's Python may not exist there.
    """
    context: Any = getattr(spark, "_sc", None)  # a remote session has none
    if context is None or _VARIABLE in os.environ or context.getConf().get(_SETTING) is not None:
        return False
    if not context.master.startswith("local"):
        logger.warning(
            "workers on %s use %s from their PATH; if it does not have cordwood, set %s to a "
            "Python that does, before the session starts",
            context.master,
            context.pythonExec,
            _VARIABLE,
        )
        return False
    if context.pythonExec == sys.executable:
        return False
    context.pythonExec = sys.executable
    return True


def make_active(spark: "SparkSession") -> None:
    """Make this the active session of the thread. A remote session needs none."""
    context: Any = getattr(spark, "_sc", None)
    if context is not None:
        sessions = context._jvm.org.apache.spark.sql.SparkSession
        sessions.setActiveSession(spark._jsparkSession)

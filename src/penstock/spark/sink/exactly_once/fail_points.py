"""Where the sink can be made to stop, for tests of kills; without effect otherwise. Tables have
points of their own.

`PENSTOCK_SPARK_HALT=task-written@1,decided@2` names points and batches, `PENSTOCK_SPARK_HALT_DIR` a
folder. The first process that comes to one writes its id into a file of that name, and does nothing
more until somebody kills it, or makes a file of the same name with `.go` behind.
"""

import enum
import os
import time
from pathlib import Path

POINTS_VARIABLE = "PENSTOCK_SPARK_HALT"
FOLDER_VARIABLE = "PENSTOCK_SPARK_HALT_DIR"
_POLL_S = 0.01


class FailPoint(enum.StrEnum):
    TASK_BEGUN = "task-begun"  # its transaction is open, nothing is written
    TASK_WRITTEN = "task-written"  # every row is acknowledged
    TASK_PREPARED = "task-prepared"  # the driver does not know yet
    COMMIT_BEGUN = "commit-begun"  # the driver has every task's report
    DECIDING = "deciding"  # others are fenced, the decision is not written
    DECIDED = "decided"  # nothing is ended yet
    ENDING = "ending"  # one transaction at least is ended
    ENDED = "ended"  # all are; Spark does not know yet


def halt_at(point: str, batch: int) -> None:
    name = f"{point}@{batch}"
    if name in os.environ.get(POINTS_VARIABLE, "").split(","):
        _halt(Path(os.environ[FOLDER_VARIABLE]) / name)


def _halt(file: Path) -> None:
    try:
        with file.open("x") as written:
            written.write(str(os.getpid()))
    except FileExistsError:
        return
    while not file.with_name(f"{file.name}.go").exists():
        time.sleep(_POLL_S)

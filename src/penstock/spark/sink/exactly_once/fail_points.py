"""Fail points: where tests can halt the sink, for kills at the worst moment. No effect otherwise.
Tables declare their own.

`PENSTOCK_SPARK_HALT=task-written@1,decided@2` names points and batches, `PENSTOCK_SPARK_HALT_DIR` a
folder. The first process that reaches a point writes its process id into a file of that name, and
does nothing more until it is killed or a file of the same name plus `.go` appears.
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
    DECIDING = "deciding"  # other drivers are fenced, the decision is not written
    DECIDED = "decided"  # the decision is written, no transaction is ended
    ENDING = "ending"  # at least one transaction is ended
    ENDED = "ended"  # all are; Spark does not know yet


ABORT_BEGUN = "abort-begun"  # not on the way of a batch that succeeds


def halt_at(point: str, batch_id: int) -> None:
    name = f"{point}@{batch_id}"
    if name in os.environ.get(POINTS_VARIABLE, "").split(","):
        _halt(Path(os.environ[FOLDER_VARIABLE]) / name)


def _halt(file: Path) -> None:
    try:
        with file.open("x") as output:
            output.write(str(os.getpid()))
    except FileExistsError:
        return
    while not file.with_name(f"{file.name}.go").exists():
        time.sleep(_POLL_S)

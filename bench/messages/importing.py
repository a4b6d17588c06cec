"""The start-up cost of message classes: CPU time and memory, each in a fresh process."""

import json
import subprocess
import sys
from typing import Any

_CODE = """
import json, resource, time
def memory():
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * resource.getpagesize() / (1 << 20)
before, start = memory(), time.process_time()
{work}
print(json.dumps([time.process_time() - start, memory() - before]))
"""
_PACKAGE = "import penstock.protocol.messages as messages"
_USUAL = f"""{_PACKAGE}
for key, version in ((18, 3), (3, 12), (0, 9), (1, 12), (2, 7), (22, 4)):
    messages.get_request_schema(key, version)
"""
_ALL = f"""{_PACKAGE}
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.schema_table import find_message_schema
for key in ApiKey:
    schema = find_message_schema(key.title + "Request")
    for version in schema.versions if schema is not None else ():
        messages.get_request_schema(key, version)
"""


def measure() -> dict[str, Any]:
    works = {"package": _PACKAGE, "six_apis_of_a_client": _USUAL, "all": _ALL}
    return {name: _measure(work) for name, work in works.items()}


def _measure(work: str, rounds: int = 5) -> dict[str, float]:
    runs = [_run(work) for _ in range(rounds)]
    return {
        "milliseconds": round(min(seconds for seconds, _ in runs) * 1000, 1),
        "megabytes": round(min(megabytes for _, megabytes in runs), 1),
    }


def _run(work: str) -> tuple[float, float]:
    ran = subprocess.run(
        [sys.executable, "-c", _CODE.format(work=work)], capture_output=True, check=True, text=True
    )
    seconds, megabytes = json.loads(ran.stdout)
    return seconds, megabytes

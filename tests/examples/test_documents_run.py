"""The Python of documents runs as it stands there, against a real broker."""

import re
from pathlib import Path
from typing import Any

import pytest

import penstock

DOCS = Path(__file__).parents[2] / "docs"


def run_blocks(name: str, bootstrap_servers: str) -> dict[str, Any]:
    """Runs the document's Python blocks one after the other, as one program; its variables."""
    text = (DOCS / name).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        here = block.replace("127.0.0.1:9092", bootstrap_servers)
        patient = here.replace("timeout_s=1\n", "timeout_s=15\n")  # on a slow machine
        exec(compile(patient, name, "exec"), names)
    return names


def test_the_examples_of_the_admin_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    with penstock.Broker() as broker:
        names = run_blocks("admin.md", broker.bootstrap_servers)
    first = names["first"]
    assert (names["ends"][first].offset, names["since"][first].offset) == (10, 0)
    assert names["names"] == ["orders", "payments"]
    assert len(names["orders"].partitions) == 6
    assert names["read"][-1] == b"order 9"
    assert names["billing"].lag == 0
    assert {reset.offset for reset in names["planned"] if reset.tp == first} == {4}
    assert (names["retention"].value, names["configs"]["cleanup.policy"].value) == (
        "7200000",
        "delete,compact",
    )
    assert names["topics"] == 2
    assert "topic orders exists already (TOPIC_ALREADY_EXISTS)" in capsys.readouterr().out

"""What `ZooKeeperConsumer` refuses before it asks anybody."""

import subprocess
import sys
from typing import Any

import pytest
from tests.zookeeper import skip_without_zookeeper

import penstock

GOOD: dict[str, Any] = {"topics": "orders", "zookeeper": "127.0.0.1:1", "group": "old"}


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"topics": None}, "name one, or a white or black list"),
        ({"topics": "no such/topic"}, "is not valid"),
        ({"black_list": "a"}, "leave out topics and white_list"),
        ({"white_list": "("}, "white_list '\\('"),
        ({"zookeeper": "a b"}, "does not name ZooKeeper"),
        ({"group": "a/b"}, "has a slash"),
        ({"group": ""}, "group is empty"),
        ({"assignment": "dice"}, "dice"),
        ({"offsets_storage": "disk"}, "offsets_storage is 'disk'"),
        ({"dual_commit": True}, "dual_commit goes with offsets_storage='kafka'"),
        ({"auto_commit_interval_s": 0}, "auto_commit_interval_s is 0"),
        ({"rebalance_max_retries": -1}, "rebalance_max_retries is -1"),
    ],
)
def test_wrong_arguments_are_named(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        penstock.ZooKeeperConsumer(**{**GOOD, **wrong})


def test_zookeeper_that_does_not_answer_is_named() -> None:
    skip_without_zookeeper()
    with pytest.raises(penstock.ZooKeeperUnavailable, match="at 127"):
        penstock.ZooKeeperConsumer(**GOOD, connect_timeout_s=0.2)


def test_without_kazoo_the_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['kazoo'] = None; import penstock\n"
        "try: penstock.ZooKeeperConsumer('t', zookeeper='127.0.0.1:1', group='g')\n"
        "except penstock.ZooKeeperUnavailable as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'penstock[cluster]'" in done.stdout, done.stderr

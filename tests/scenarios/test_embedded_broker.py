"""`penstock.Broker` and the pytest fixtures as users see them."""

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import penstock
from penstock.testing.embedded_broker import BrokerNotStarted


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for brokers without `data`."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("in_process", [False, True])
def test_a_broker_that_cannot_start_says_why_and_leaves_no_files(
    temporary: Path, in_process: bool
) -> None:
    broker = penstock.Broker(config={"log.segmnt.bytes": 1}, in_process=in_process)
    with pytest.raises(BrokerNotStarted, match=r"did you mean log\.segment\.bytes"):
        broker.start()
    assert list(temporary.iterdir()) == []


def test_a_single_broker_says_which_partition_has_lost_its_folder_and_serves_the_rest(
    tmp_path: Path,
) -> None:
    broker = penstock.Broker(data=tmp_path).start()
    broker.create_topic("orders", partitions=2)
    broker.stop()
    shutil.rmtree(tmp_path / "orders-1")
    with broker:
        assert (
            "orders-1 lacks records: it is assigned to this broker, which has no" in broker.logs()
        )
        assert "orders-0 lacks" not in broker.logs()
        assert (tmp_path / "orders-1").is_dir()


def test_a_failed_restart_keeps_the_records(temporary: Path) -> None:
    broker = penstock.Broker().start()
    broker.create_topic("orders")
    broker.kill()
    (broker.data / "meta.properties").write_text("version=0\nbroker.id=7\ncluster.id=another\n")
    with pytest.raises(BrokerNotStarted, match="another"):
        broker.start()
    assert (broker.data / "orders-0").is_dir()
    broker.stop()
    assert list(temporary.iterdir()) == []


# Runs in its own process, whose group it interrupts as a terminal or a notebook does.
INTERRUPTED = """
import os, signal
import penstock

with penstock.Broker() as broker:
    try:
        os.killpg(os.getpgrp(), signal.SIGINT)
        signal.pause()
    except KeyboardInterrupt:
        broker.create_topic("afterwards")
        print("still served")
"""


def test_ctrl_c_in_a_program_does_not_stop_its_broker() -> None:
    run = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        process_group=0,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "still served\n"), run.stderr


def test_a_broker_ends_with_the_program_that_started_it(tmp_path: Path) -> None:
    program = "import penstock, signal; print(penstock.Broker().start().pid, flush=True)\n"
    parent = subprocess.Popen(
        [sys.executable, "-c", program + "signal.pause()"], stdout=subprocess.PIPE, cwd=tmp_path
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        descriptor = os.pidfd_open(pid)
        parent.send_signal(signal.SIGKILL)
    try:
        wait_for_exit(descriptor, timeout_s=180)
    finally:
        os.close(descriptor)


def wait_for_exit(descriptor: int, *, timeout_s: float) -> None:
    ready, _, _ = select.select([descriptor], [], [], timeout_s)
    assert ready, "the broker outlives its parent"


def test_files_named_like_modules_in_the_working_directory_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue.py").write_text("raise AssertionError('not for the broker')")
    monkeypatch.chdir(tmp_path)
    with penstock.Broker() as broker:
        broker.create_topic("orders")


A_PROJECT = """
import penstock


def test_one(penstock_broker, penstock_topic):
    with penstock.Producer(penstock_broker.bootstrap_servers) as producer:
        assert producer.send_and_wait(penstock_topic, b"value").offset == 0


def test_two(penstock_broker, penstock_topic):
    with penstock.Producer(penstock_broker.bootstrap_servers) as producer:
        assert producer.send_and_wait(penstock_topic, b"value").offset == 0
"""


def test_another_projects_tests_find_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_project.py").write_text(A_PROJECT)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "2 passed" in run.stdout

"""A full disk: produce fails, the broker ends with a clear log line, no acknowledged record is
lost."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.scenarios.up_process import penstock_up

import penstock
from penstock.client.errors import SendFailed


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "penstock-test", str(directory)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def test_a_broker_whose_only_log_dir_is_full_ends_and_loses_no_acknowledged_record(
    small_disk: Path,
) -> None:
    acknowledged: list[int] = []
    with penstock_up("--data", str(small_disk), "--listen", "127.0.0.1:0") as up:
        with penstock.Producer(
            up.bootstrap_servers, delivery_timeout_ms=30_000, linger_ms=0, retries=0
        ) as producer:
            try:
                for number in range(2_000):
                    value = number.to_bytes(4, "big") + bytes(16_000)
                    producer.send_and_wait("events", value)
                    acknowledged.append(number)
            except SendFailed:
                pass  # the disk is full
        assert up.wait() == 3
        assert up.logs[-1].startswith("stopped, as it cannot go on: log directory")
        assert "No space left on device" in up.logs[-1]
    assert 0 < len(acknowledged) < 2_000
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    with penstock_up("--data", str(small_disk), "--listen", "127.0.0.1:0") as up:
        with penstock.Consumer(
            "events", bootstrap_servers=up.bootstrap_servers, from_beginning=True, timeout_s=30
        ) as consumer:
            received = []
            for message in consumer:
                assert message.value is not None
                received.append(int.from_bytes(message.value[:4], "big"))
                if len(received) == len(acknowledged):
                    break
        assert received == acknowledged
        assert up.end() == 0

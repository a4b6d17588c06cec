"""A full disk: produce fails, the broker ends with a clear log line, no acknowledged record is
lost."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.scenarios.up_process import penstock_up

import penstock
from penstock.client.admin_values import AlterConfigOp, ConfigResource
from penstock.client.cluster import ClusterClient
from penstock.client.errors import ClientError, SendFailed


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
        assert "stopped, because it cannot continue: log directory" in up.logs[-1]
        assert "No space left on device" in up.logs[-1]
        assert "Traceback" not in "\n".join(up.logs)
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


def test_a_broker_whose_metadata_store_cannot_write_ends_with_one_line(tmp_path: Path) -> None:
    """The journal may not grow beyond 16 KiB."""
    limited = ("sh", "-c", 'ulimit -f 16; exec "$@"', "sh")
    arguments = ("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    with penstock_up(*arguments, prefix=limited) as up:
        asyncio.run(alter_until_refused(up.bootstrap_servers))
        assert up.wait() == 3
    assert "Traceback" not in "\n".join(up.logs)
    assert "never awaited" not in "\n".join(up.logs)
    assert (
        f"stopped, because it cannot continue: the metadata store in {tmp_path}/data/.coordination"
        in up.logs[-1]
    )
    assert "File too large" in up.logs[-1]
    assert up.logs[-1].endswith("repair or replace the disk and restart the broker")


async def alter_until_refused(bootstrap: str) -> None:
    """Changes a config of the broker, which only the metadata store keeps."""
    resource = ConfigResource.broker(1)
    async with ClusterClient(bootstrap) as client:
        with suppress(ClientError):
            for number in range(10_000):
                change = AlterConfigOp("log.retention.ms", str(10**15 + number))
                await client.admin.incremental_alter_configs({resource: [change]}, timeout_ms=5_000)

"""Removes data from a broker's disk while it is down: a folder, segments, all, or the latest.

Damages the disk of a simulated broker. Each kind can be known from the disk and the metadata store.
"""

from penstock.model.ids import TopicPartition
from penstock.storage.checkpoints import HIGH_WATERMARK_FILE, read_offsets
from penstock.testing.simulated_disk import SimulatedDisk

DIRECTORY = "/d"


def lose_folder(disk: SimulatedDisk, tp: TopicPartition) -> SimulatedDisk:
    folder = f"{DIRECTORY}/{tp}"
    if disk.exists(folder):
        for entry in disk.list(folder):
            disk.remove(f"{folder}/{entry.name}")
        disk.remove_directory(folder)
        disk.sync_directory(DIRECTORY)
    return disk


def lose_newest_segment(disk: SimulatedDisk, tp: TopicPartition) -> SimulatedDisk:
    """The folder if that segment has nothing that the checkpoints prove to be committed."""
    folder = f"{DIRECTORY}/{tp}"
    names = [entry.name for entry in disk.list(folder)] if disk.exists(folder) else []
    logs = sorted(name for name in names if name.endswith(".log"))
    high_watermark = read_offsets(disk, f"{DIRECTORY}/{HIGH_WATERMARK_FILE}").get(tp, 0)
    if len(logs) < 2 or high_watermark <= int(logs[-1].partition(".")[0]):
        return lose_folder(disk, tp)
    base = logs[-1].partition(".")[0]
    for name in names:
        if name.startswith(base):
            disk.remove(f"{folder}/{name}")
    return disk


def lose_everything(disk: SimulatedDisk, tp: TopicPartition) -> SimulatedDisk:
    return SimulatedDisk(DIRECTORY)

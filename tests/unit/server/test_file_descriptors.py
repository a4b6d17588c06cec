"""How many files logs and connections may have open."""

import pytest

from penstock.server.file_descriptors import LOG_FILES, find_warning, share_descriptors


@pytest.mark.parametrize("limit", [16, 64, 256, 1024, 4096, 1 << 20])
def test_all_shares_together_are_no_more_than_the_limit(limit: int) -> None:
    log_files, connections = share_descriptors(limit)
    maps = log_files // 2
    assert log_files > 0
    assert connections > 0
    assert log_files + maps + connections < limit


def test_logs_take_no_more_than_they_can_use() -> None:
    assert share_descriptors(1 << 20).log_files == LOG_FILES
    assert share_descriptors(1 << 20).connections > 1_000_000


def test_a_low_limit_is_told_with_what_follows_from_it() -> None:
    assert find_warning(65_536) is None
    told = find_warning(64)
    assert told is not None
    assert "may open 64 files, so at most 22 connections" in told

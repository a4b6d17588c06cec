"""How file descriptors are divided among log files and connections."""

import pytest

from penstock.server.file_descriptors import LOG_FILES, find_warning, share_descriptors


@pytest.mark.parametrize("limit", [16, 64, 256, 1024, 4096, 1 << 20])
def test_the_shares_add_up_to_at_most_the_limit(limit: int) -> None:
    log_files, connections = share_descriptors(limit)
    maps = log_files // 2
    assert log_files > 0
    assert connections > 0
    assert log_files + maps + connections < limit


def test_the_share_of_log_files_is_bounded() -> None:
    assert share_descriptors(1 << 20).log_files == LOG_FILES
    assert share_descriptors(1 << 20).connections > 1_000_000


def test_a_low_limit_is_reported_with_its_consequence() -> None:
    assert find_warning(65_536) is None
    warning = find_warning(64)
    assert warning is not None
    assert "may open 64 files, so at most 22 connections" in warning

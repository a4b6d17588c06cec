"""What the log says about members that a limit has refused."""

from penstock.coordinators.group.limits import COORDINATOR_MAX_BYTES, MAX_BYTES, MAX_SIZE
from penstock.coordinators.group.refused_members import (
    LINES_A_MINUTE,
    MAX_REMEMBERED,
    RefusedMembers,
)
from penstock.logs.event_logger import message_logger
from penstock.testing.manual_clock import ManualClock

MINUTE_MS = 60_000


def test_each_limit_of_a_group_is_logged_once_an_hour() -> None:
    clock, lines = ManualClock(), list[str]()
    refused = RefusedMembers(message_logger(lines.append), clock.wall_ms)
    for _ in range(3):
        refused.add("orders", MAX_SIZE)
        refused.add("orders", MAX_BYTES)
        refused.add("billing", MAX_SIZE)
    assert [("'orders'" in line, MAX_SIZE in line) for line in lines] == [
        (True, True),
        (True, False),
        (False, True),
    ]
    clock.advance_ms(59 * MINUTE_MS)
    refused.add("orders", MAX_SIZE)
    assert len(lines) == 3
    clock.advance_ms(MINUTE_MS)
    refused.add("orders", MAX_SIZE)
    assert lines[3] == lines[0]


def test_the_limit_of_the_coordinator_is_logged_once_for_all_groups() -> None:
    lines: list[str] = []
    refused = RefusedMembers(message_logger(lines.append), ManualClock().wall_ms)
    refused.add("orders", COORDINATOR_MAX_BYTES)
    refused.add("billing", COORDINATOR_MAX_BYTES)
    assert len(lines) == 1


def test_many_groups_fill_neither_the_log_nor_the_memory() -> None:
    clock, lines = ManualClock(), list[str]()
    refused = RefusedMembers(message_logger(lines.append), clock.wall_ms)
    minutes = 2 * MAX_REMEMBERED // LINES_A_MINUTE
    for minute in range(minutes):
        for number in range(LINES_A_MINUTE + 5):
            refused.add(f"{minute}-{number}", MAX_SIZE)
        clock.advance_ms(MINUTE_MS)
    assert len(lines) == minutes * LINES_A_MINUTE
    assert len(refused._logged_ms) == MAX_REMEMBERED


def test_the_name_of_a_group_cannot_forge_a_line() -> None:
    lines: list[str] = []
    RefusedMembers(message_logger(lines.append), ManualClock().wall_ms).add(
        "a\nbroker 1 stopped", MAX_SIZE
    )
    assert "\n" not in lines[0]

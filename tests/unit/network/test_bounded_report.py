"""Log lines about clients are bounded, and suppressed ones are counted."""

from penstock.network.bounded_report import LINES_A_SECOND, BoundedReport


def test_lines_beyond_the_limit_are_counted_instead_of_reported() -> None:
    now_ms = 5_000
    lines: list[str] = []
    report = BoundedReport(lines.append, lambda: now_ms)
    for number in range(LINES_A_SECOND + 7):
        report(f"line {number}")
    assert lines == [f"line {number}" for number in range(LINES_A_SECOND)]
    now_ms = 6_000
    report("next")
    report("last")
    assert lines[LINES_A_SECOND:] == ["next (and 7 more lines suppressed before it)", "last"]

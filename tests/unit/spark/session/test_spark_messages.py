"""Messages of Spark 4.3, and the part of them that a user sees."""

import pytest

from penstock.spark.session.spark_messages import explain, find_line, is_state_of_another_query

PLAN = """'Project [n#91, 'mss]
+- SubqueryAlias c
   +- Filter (CASE WHEN a THEN cast(raise_error(USER_RAISED_EXCEPTION, map(errorMessage,
 concat(penstock found a bad value: JSON of the schema)))) SQLSTATE: P0001"""

QUERY = """
=== Streaming Query ===
Identifier: [id = 63ad1c77, runId = a96f2fc5]
Current Available Offsets: {org.apache.spark.sql.X@5e90746b: {"clicks": {"0": 500}}}
Logical Plan:
WriteToMicroBatchDataSource noop-table
"""

TRACE = """Traceback (most recent call last):
  File "/python_streaming_source_runner.py", line 267, in main
    return write_offset(self._get_driver().initial_offset())
"""


@pytest.mark.parametrize(
    ("message", "reason", "line"),
    [
        (
            (
                "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'clicks': extra input 'clicks'. "
                "SQLSTATE: 42601 (line 2, pos 5)\n\n== SQL ==\nSELECT user\nFORM clicks\n-----^^^\n"
            ),
            "Syntax error at or near 'clicks': extra input 'clicks'.",
            2,
        ),
        (
            (
                "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter "
                "with name `mss` cannot be resolved. Did you mean one of the following? "
                f"[`s`, `n`]. SQLSTATE: 42703; line 2 pos 1;\n{PLAN}"
            ),
            (
                "A column, variable, or function parameter with name `mss` cannot be resolved. "
                "Did you mean one of the following? [`s`, `n`]."
            ),
            2,
        ),
        (
            (
                "[TABLE_OR_VIEW_NOT_FOUND] The table or view `clickz` cannot be found. Verify the "
                "spelling and correctness of the schema and catalog.\nSearch path: [`system`].\n"
                "If you did not qualify the name. SQLSTATE: 42P01; line 3 pos 1;\n'Project [x]\n"
            ),
            (
                "The table or view `clickz` cannot be found. Verify the spelling and correctness "
                "of the schema and catalog."
            ),
            3,
        ),
        (
            (
                "[UNRESOLVED_ROUTINE] Cannot resolve routine `nofun` on search path [`system`]. "
                "SQLSTATE: 42883; line 1 pos 7"
            ),
            "Cannot resolve routine `nofun` on search path [`system`].",
            1,
        ),
        (
            (
                "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data "
                "source perform initialOffset: "
                f"{TRACE}penstock.spark.errors.SparkSourceError: there is no topic 'nothere' in "
                f"this cluster\n SQLSTATE: 38000{QUERY}"
            ),
            "there is no topic 'nothere' in this cluster",
            None,
        ),
        (
            (
                "[STREAM_FAILED] Query terminated with exception: An exception was thrown from "
                f"the Python worker:\n{TRACE}ValueError: could not convert string to float: 'x'\n"
                f"{QUERY}"
            ),
            "ValueError: could not convert string to float: 'x'",
            None,
        ),
        (
            (
                "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted: "
                "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide`. SQLSTATE: 22012\n"
                f"\tat org.apache.spark.X.y(X.scala:1)\n{QUERY}"
            ),
            "Division by zero. Use `try_divide`.",
            None,
        ),
        (
            (
                "An error occurred while calling o65.start.\n: org.apache.spark."
                "SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find the data "
                "source: delta. Make sure the provider name is correct. SQLSTATE: 42K02\n"
                "\tat org.apache.spark.X.y(X.scala:1)\nCaused by: java.lang.Z: delta.W\n\tat a.B"
            ),
            (
                "Failed to find the data source: delta. Make sure the provider name is correct; "
                "formats that do not come with Spark need their package, for example as "
                "spark.jars.packages under `settings:`"
            ),
            None,
        ),
        ("Python worker failed to connect back.", "Python worker failed to connect back.", None),
    ],
)
def test_only_the_reason_is_left(message: str, reason: str, line: int | None) -> None:
    assert explain(message) == reason
    assert find_line(message) == line


def test_invalid_value_is_explained_with_a_remedy() -> None:
    message = (
        "[USER_RAISED_EXCEPTION] penstock found a bad value: JSON was expected in topic clicks, "
        f"partition 1, offset 500, but the value begins with oh\n<no> SQLSTATE: P0001{QUERY}"
    )
    assert explain(message) == (
        "JSON was expected in topic clicks, partition 1, offset 500, but the value begins with oh "
        "<no>; fix the record, or add `dead_letter: TOPIC` to the source to keep such "
        "records aside, or `bad_values: skip` to drop them"
    )


def test_long_reason_is_truncated() -> None:
    assert len(explain("x " * 5000)) < 700


@pytest.mark.parametrize(
    ("condition", "is_so"),
    [
        ("STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE", True),
        ("STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE", True),
        ("STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA", True),
        ("STATE_STORE_COMMIT_VALIDATION_FAILED", False),
        ("DIVIDE_BY_ZERO", False),
    ],
)
def test_state_of_another_query_is_told_from_other_failures(condition: str, is_so: bool) -> None:
    text = f"[STREAM_FAILED] Query terminated with exception: [{condition}] Provided."
    assert is_state_of_another_query(text) == is_so


def test_a_lost_watermark_says_what_to_keep() -> None:
    text = (
        "dropDuplicatesWithinWatermark is not supported on streaming DataFrames/DataSets without "
        "watermark;\n~CollectMetrics written, [count(1) AS rows#28L], 17"
    )
    assert explain(text).startswith(
        "duplicates can only be found among rows with a watermark: keep"
    )

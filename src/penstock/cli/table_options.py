"""The options of `penstock table` with their help texts."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_DIR = Path("penstock-tables")
DEFAULT_FILE_BYTES = 128 * 1024 * 1024

TopicsArgument = Annotated[list[str] | None, typer.Argument(metavar="[TOPIC...]", help="Topics.")]
DirOption = Annotated[
    Path,
    typer.Option("--dir", metavar="DIR", help="Folder of the tables, with a folder per topic."),
]
FileBytesOption = Annotated[
    int, typer.Option("--file-bytes", min=1024, metavar="N", help="Target size of files.")
]
KeepHoursOption = Annotated[
    int, typer.Option("--keep-hours", min=0, metavar="N", help="Keep unused files this long.")
]

# The specification of a new table. None: absent.
FormatOption = Annotated[
    str | None, typer.Option("--format", metavar="FORMAT", help="delta, iceberg or parquet.")
]
ValueOption = Annotated[
    str | None,
    typer.Option("--value", metavar="KIND", help="raw, text, json or avro.  [default: raw]"),
]
SchemaOption = Annotated[
    str | None,
    typer.Option(
        "--schema", metavar="COLUMNS", help="Columns of JSON values: 'user STRING, n INT'."
    ),
]
SchemaFileOption = Annotated[
    Path | None, typer.Option("--schema-file", metavar="FILE", help="Avro schema of values.")
]
RegistryPrefixOption = Annotated[
    bool, typer.Option("--registry-prefix", help="Avro values start with a schema registry's id.")
]
EvolveOption = Annotated[
    bool | None,
    typer.Option(
        "--evolve/--no-evolve",
        help="Add columns for new JSON fields.  [default: unless --schema is given]",
    ),
]
PartitionByOption = Annotated[
    list[str] | None,
    typer.Option(
        "--partition-by",
        metavar="COLUMN",
        help="COLUMN, or year, month, day or hour of it: day(COLUMN); repeatable.",
    ),
]
UpsertOption = Annotated[bool, typer.Option("--upsert", help="Keep only each key's latest row.")]
DropValueOption = Annotated[
    bool, typer.Option("--drop-value", help="Keep only the columns, not the raw value.")
]
BadValuesOption = Annotated[
    str | None,
    typer.Option(
        "--bad-values", metavar="WHAT", help="dead-letter or fail.  [default: dead-letter]"
    ),
]

# The options of one run.
OnceOption = Annotated[bool, typer.Option("--once", help="End when the tables are up to date.")]
EveryOption = Annotated[
    float, typer.Option("--every", min=0.1, metavar="SECONDS", help="Interval to poll the topics.")
]
MaxRecordsOption = Annotated[
    int, typer.Option("--max-records", min=1, metavar="N", help="Records per commit.")
]
CompactOption = Annotated[
    bool, typer.Option("--compact/--no-compact", help="Merge small files into larger ones.")
]
AllowLossOption = Annotated[
    bool, typer.Option("--allow-loss", help="Continue if the topic has deleted unread records.")
]

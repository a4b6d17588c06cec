"""The options of `penstock table` with their help. What they mean is said where they are used."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_DIR = Path("penstock-tables")
DEFAULT_FILE_BYTES = 128 * 1024 * 1024

TopicsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[TOPIC...]", help="One or more.")
]
DirOption = Annotated[
    Path,
    typer.Option("--dir", metavar="DIR", help="Folder of the tables, one folder for each topic."),
]
FileBytesOption = Annotated[
    int, typer.Option("--file-bytes", min=1024, metavar="N", help="Size that files ought to have.")
]
KeepHoursOption = Annotated[
    int, typer.Option("--keep-hours", min=0, metavar="N", help="Of files no longer needed.")
]

# What a table is to be. None: not said.
FormatOption = Annotated[
    str | None, typer.Option("--format", metavar="FORMAT", help="delta, iceberg or parquet.")
]
ValueOption = Annotated[
    str | None,
    typer.Option("--value", metavar="KIND", help="raw, text, json or avro.  [default: raw]"),
]
SchemaOption = Annotated[
    str | None,
    typer.Option("--schema", metavar="COLUMNS", help="Of JSON values: 'user STRING, n INT'."),
]
SchemaFileOption = Annotated[
    Path | None, typer.Option("--schema-file", metavar="FILE", help="Of Avro values.")
]
RegistryPrefixOption = Annotated[
    bool, typer.Option("--registry-prefix", help="Avro values begin with a schema's number.")
]
EvolveOption = Annotated[
    bool | None,
    typer.Option(
        "--evolve/--no-evolve",
        help="New fields of JSON become columns.  [default: unless --schema is given]",
    ),
]
PartitionByOption = Annotated[
    list[str] | None,
    typer.Option(
        "--partition-by", metavar="COLUMN", help="Or day(COLUMN) and the like; repeatable."
    ),
]
UpsertOption = Annotated[bool, typer.Option("--upsert", help="One row for each key, the latest.")]
DropValueOption = Annotated[
    bool, typer.Option("--drop-value", help="Columns alone, not the value as it came.")
]
BadValuesOption = Annotated[
    str | None,
    typer.Option(
        "--bad-values", metavar="WHAT", help="dead-letter or fail.  [default: dead-letter]"
    ),
]

# How it is kept this time.
OnceOption = Annotated[bool, typer.Option("--once", help="Until it is all there, then end.")]
EveryOption = Annotated[
    float, typer.Option("--every", min=0.1, metavar="SECONDS", help="Look for new records.")
]
MaxRecordsOption = Annotated[
    int, typer.Option("--max-records", min=1, metavar="N", help="Of one commit.")
]
CompactOption = Annotated[
    bool, typer.Option("--compact/--no-compact", help="Small files into larger ones.")
]
AllowLossOption = Annotated[
    bool, typer.Option("--allow-loss", help="Go on where the topic has deleted what is missing.")
]

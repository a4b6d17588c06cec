"""Topic settings that describe the table of a topic. Brokers store them; `penstock table` reads
them. Kafka has none of these."""

from penstock.config.check import one_of
from penstock.config.declare import topic
from penstock.config.setting import Setting, SettingKind

TABLE_SETTINGS: tuple[Setting, ...] = (
    topic(
        "penstock.table.format",
        SettingKind.STRING,
        "none",
        "Format of the table that `penstock table sync` keeps of this topic; none: no table.",
        one_of("none", "delta", "iceberg", "parquet"),
        own=True,
    ),
    topic(
        "penstock.table.value",
        SettingKind.STRING,
        "raw",
        "What the table makes of values: raw bytes, text, or columns of JSON or Avro.",
        one_of("raw", "text", "json", "avro"),
        own=True,
    ),
    topic(
        "penstock.table.schema",
        SettingKind.STRING,
        "",
        "Columns of JSON values, as in user STRING, at TIMESTAMP; or the schema of Avro values.",
        own=True,
    ),
    topic(
        "penstock.table.registry.prefix",
        SettingKind.BOOLEAN,
        False,
        "Whether Avro values begin with the number of a registry's schema.",
        own=True,
    ),
    topic(
        "penstock.table.partition.by",
        SettingKind.LIST,
        (),
        "What the table is divided by: columns, or day(_timestamp) and the like.",
        own=True,
    ),
    topic(
        "penstock.table.upsert",
        SettingKind.BOOLEAN,
        False,
        "Whether the table has one row for each key, the latest, instead of every record.",
        own=True,
    ),
)

"""Checks what refines sources and views: event time, expectations, duplicates. Needs no Spark."""

from collections.abc import Iterator

from penstock.spark.codec.avro_types import avro_columns
from penstock.spark.codec.ddl_columns import column_names
from penstock.spark.codec.protobuf_types import load_message, protobuf_columns
from penstock.spark.pipeline.lineage import read_relations
from penstock.spark.pipeline.problems import Problems, listed, suggest
from penstock.spark.pipeline.spec import (
    CHANGE_COLUMNS,
    HEADERS_COLUMN,
    RECORD_COLUMNS,
    Encoding,
    FileSource,
    Pipeline,
    PipelineView,
    Source,
    TopicSource,
    Watermark,
)

_NOT_ASIDE = "only topics and views keep rows aside: expect it in a view with a `dead_letter:`"
_ASIDE = "expectations that keep rows aside need a topic: `dead_letter: TOPIC`"


def check_refinements(pipeline: Pipeline, problems: Problems) -> None:
    names = [relation.name for relation in (*pipeline.sources, *pipeline.views)]
    for source in pipeline.sources:
        if source.refinement.watermark is not None:
            _check_watermark(source, source.refinement.watermark, problems)
        _check_dedup(source, problems)
        if source.refinement.sends_dead_letters() and dead_letter_of(source) is None:
            missing = _ASIDE if isinstance(source, TopicSource) else (_NOT_ASIDE)
            problems.add(source.line, f"source {source.name}: {missing}")
    for view in pipeline.views:
        known_names = {name.lower() for name in names} | problems.unreadable
        if isinstance(view.reads, str) and view.reads.lower() not in known_names:
            problems.add(
                view.line,
                f"view {view.name}: there is no source or view {view.reads!r}"
                f"{suggest(view.reads, names)}; there are: {listed(names) or 'none'}",
            )
        _check_view(view, pipeline, problems)


def _check_view(view: PipelineView, pipeline: Pipeline, problems: Problems) -> None:
    where = f"view {view.name}"
    aside = view.refinement.sends_dead_letters()
    if aside and view.dead_letter is None:
        problems.add(view.line, f"{where}: {_ASIDE}")
    if view.dead_letter is not None and not aside:
        problems.add(
            view.line,
            f"{where}: nothing is kept aside in {view.dead_letter!r}: add an expectation with "
            "`otherwise: dead_letter`, or drop `dead_letter:`",
        )
    dedup = view.refinement.dedup
    if dedup is not None and view.refinement.watermark is None:
        sources = list(_streams_of(view, pipeline))
        if sources and not any(_has_watermark(name, pipeline) for name in sources):
            problems.add(dedup.line, f"{where}: {_needs_watermark()}")


def _streams_of(view: PipelineView, pipeline: Pipeline) -> Iterator[str]:
    """The names of all relations that the view reads, if a stream is among them."""
    read = read_relations(pipeline, view.reads)
    streams = {source.name.lower() for source in pipeline.sources if source.is_stream}
    return iter(sorted(read) if read & streams else ())


def _has_watermark(name: str, pipeline: Pipeline) -> bool:
    relations = (*pipeline.sources, *pipeline.views)
    return any(
        relation.refinement.watermark is not None
        for relation in relations
        if relation.name.lower() == name
    )


def dead_letter_of(source: Source) -> str | None:
    return source.dead_letter if isinstance(source, TopicSource) else None


def _check_dedup(source: Source, problems: Problems) -> None:
    dedup = source.refinement.dedup
    if dedup is None:
        return
    if source.is_stream and source.refinement.watermark is None:
        problems.add(dedup.line, f"source {source.name}: {_needs_watermark()}")
    columns = find_columns(source)
    for column in dedup.by if columns is not None else ():
        _check_column(source, column, columns or [], dedup.line, "to find duplicates by", problems)


def _needs_watermark() -> str:
    return (
        "to find duplicates in a stream, say how late they come: "
        "`watermark: {column: at, delay: 10 minutes}`"
    )


def _check_watermark(source: Source, watermark: Watermark, problems: Problems) -> None:
    where = f"source {source.name}"
    if not source.is_stream:
        problems.add(watermark.line, f"{where}: only a stream has a watermark; add `stream: true`")
    columns = find_columns(source)
    if columns is not None and watermark.expression is None:
        _check_column(
            source, watermark.column, columns, watermark.line, "for the watermark", problems
        )


def _check_column(
    source: Source, column: str, columns: list[str], line: int, what: str, problems: Problems
) -> None:
    watermark = source.refinement.watermark
    made = [watermark.column] if watermark is not None and watermark.expression else []
    names = [*columns, *made]
    if column.lower() not in {name.lower() for name in names}:
        problems.add(
            line,
            f"source {source.name}: there is no column {column!r} {what}"
            f"{suggest(column, names)}; there are: {listed(names)}",
        )


def find_columns(source: Source) -> list[str] | None:
    """The source's columns; None if only Spark knows them."""
    if isinstance(source, FileSource):
        return None if source.columns is None else column_names(source.columns)
    if not isinstance(source, TopicSource):
        return None
    metadata = [*RECORD_COLUMNS, *([HEADERS_COLUMN] * source.has_headers)]
    value = source.value
    if value.encoding in (Encoding.TEXT, Encoding.BINARY):
        return ["value", *metadata]
    if value.encoding is Encoding.DEBEZIUM and value.columns is not None:
        return [*column_names(value.columns), *CHANGE_COLUMNS, *metadata]
    if value.columns is not None:
        return [*column_names(value.columns), *metadata]
    if value.descriptors is not None:
        message = load_message(value.descriptors, value.message)
        return [*protobuf_columns(message), *metadata]
    return None if value.avro is None else [*avro_columns(value.avro), *metadata]

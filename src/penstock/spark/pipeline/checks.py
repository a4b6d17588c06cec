"""Checks the parts of a pipeline against each other and against the connector's options. Needs
neither a cluster nor Spark.
"""

from collections.abc import Iterable

from penstock.model.ids import InvalidTopicName, check_topic_name
from penstock.spark.codec.ddl_columns import column_names
from penstock.spark.errors import BadOption, SparkSourceError
from penstock.spark.pipeline.check_relations import check_refinements
from penstock.spark.pipeline.check_targets import check_merges
from penstock.spark.pipeline.connector_options import (
    RESERVED,
    find_literal_secrets,
    plain_name,
    sink_options,
    source_options,
)
from penstock.spark.pipeline.lineage import later_views, read_relations
from penstock.spark.pipeline.problems import Problems, listed, suggest
from penstock.spark.pipeline.spec import (
    CHANGE_COLUMNS,
    HEADERS_COLUMN,
    RECORD_COLUMNS,
    BadValuePolicy,
    Encoding,
    FileTarget,
    Options,
    OutputMode,
    Pipeline,
    PipelineView,
    Sink,
    Source,
    TopicSource,
    TopicTarget,
    branch_sinks,
)
from penstock.spark.sink.options import parse_sink_options
from penstock.spark.source.options import ReadMode as ReadMode
from penstock.spark.source.options import parse_source_options

_ANY_BOOTSTRAP = "127.0.0.1:9092"  # if the file names none: the command line may


def check_pipeline(pipeline: Pipeline, problems: Problems) -> None:
    _check_names(pipeline, problems)
    for source in pipeline.sources:
        if isinstance(source, TopicSource):
            _check_topic_source(source, pipeline, problems)
    check_refinements(pipeline, problems)
    for name, line, other, other_line in later_views(pipeline):
        is_itself = name.lower() == other
        where = "reads itself" if is_itself else f"reads view {other}, which is below it"
        problems.add(line, f"view {name}: {where} (line {other_line}): define views before use")
    for view in pipeline.views:
        if view.dead_letter is not None:
            _check_view_dead_letter(view, view.dead_letter, pipeline, problems)
    for sink in pipeline.sinks:
        _check_sink(sink, pipeline, problems)
    relations: list[TopicSource | PipelineView] = [*pipeline.topic_sources(), *pipeline.views]
    letters = [pipeline.dead_letter_sink(relation) for relation in relations]
    _check_checkpoints([*pipeline.sinks, *(sink for sink in letters if sink)], problems)


def _check_names(pipeline: Pipeline, problems: Problems) -> None:
    """Names must be unique, ignoring case, as Spark does."""
    first: dict[str, Source | PipelineView] = {}
    for relation in (*pipeline.sources, *pipeline.views):
        other = first.setdefault(relation.name.lower(), relation)
        if other is not relation:
            problems.add(
                relation.line, f"the name {relation.name!r} is already used in line {other.line}"
            )


def _check_topic_source(source: TopicSource, pipeline: Pipeline, problems: Problems) -> None:
    where = f"source {source.name}"
    named = [*source.topics, *([source.dead_letter] if source.dead_letter else [])]
    _check_topic_names(named, source.line, where, problems)
    if source.dead_letter in source.topics:
        problems.add(
            source.line, f"{where}: it reads its own dead-letter topic: name another topic"
        )
    _check_reserved(source.options, where, problems)
    _check_value_columns(source, where, problems)
    options = source_options(source, pipeline.bootstrap or _ANY_BOOTSTRAP)
    mode = ReadMode.STREAM if source.is_stream else ReadMode.BATCH
    try:
        parse_source_options(options, mode)
    except SparkSourceError as error:
        problems.add(_line_of(error, source.options, source.line), f"{where}: {error}")


def _check_view_dead_letter(
    view: PipelineView, topic: str, pipeline: Pipeline, problems: Problems
) -> None:
    where = f"view {view.name}"
    _check_topic_names([topic], view.line, where, problems)
    read = read_relations(pipeline, view.reads)
    for source in pipeline.topic_sources():
        if source.name.lower() in read and topic in source.topics:
            problems.add(
                view.line,
                f"{where}: its dead-letter topic {topic!r} is read by its own source "
                f"{source.name}: name another topic",
            )


def _check_value_columns(source: TopicSource, where: str, problems: Problems) -> None:
    value = source.value
    if value.columns is not None:
        own = CHANGE_COLUMNS if value.encoding is Encoding.DEBEZIUM else ()
        taken = {*RECORD_COLUMNS, HEADERS_COLUMN, *own}.intersection(column_names(value.columns))
        if taken:
            problems.add(
                value.line,
                f"{where}: columns {listed(taken)} are the record's own metadata; rename yours",
            )
    if value.registry is not None and value.registry.subject is None and len(source.topics) != 1:
        problems.add(
            value.line,
            f"{where}: with several topics, say which schema their values have: `subject: NAME`",
        )
    is_plain = value.encoding in (Encoding.TEXT, Encoding.BINARY)
    aside = source.refinement.sends_dead_letters()
    if is_plain and source.bad_values is not BadValuePolicy.FAIL and not aside:
        problems.add(
            value.line,
            f"{where}: every value is {value.encoding}, so nothing can fail to parse; give the "
            "value a format (json, avro) or drop dead_letter and bad_values",
        )


def _check_sink(sink: Sink, pipeline: Pipeline, problems: Problems) -> None:
    where = f"sink {sink.name}"
    if isinstance(sink.reads, str):
        names = [relation.name for relation in (*pipeline.sources, *pipeline.views)]
        known_names = {name.lower() for name in names} | problems.unreadable
        if sink.reads.lower() not in known_names:
            problems.add(
                sink.line,
                f"{where}: there is no source or view {sink.reads!r}{suggest(sink.reads, names)}; "
                f"there are: {listed(names) or 'none'}",
            )
    if isinstance(sink.target, FileTarget) and sink.mode in (
        OutputMode.UPDATE,
        OutputMode.COMPLETE,
    ):
        problems.add(
            sink.line,
            f"{where}: files can only be appended to, so mode {sink.mode} is impossible: drop "
            "`mode:` and give an aggregate's source a watermark, so that windows are written when "
            "they close",
        )
    if isinstance(sink.target, TopicTarget):
        _check_topic_target(sink.target, sink, pipeline, problems)
    check_merges(sink, problems)
    for part in branch_sinks(sink):
        if isinstance(part.target, TopicTarget):
            _check_topic_target(part.target, part, pipeline, problems)


def _check_topic_target(
    target: TopicTarget, sink: Sink, pipeline: Pipeline, problems: Problems
) -> None:
    where = f"sink {sink.name}"
    if not _check_topic_names([target.topic], sink.line, where, problems):
        return
    _check_reserved(sink.options, where, problems)
    try:
        parse_sink_options(sink_options(target, sink, pipeline.bootstrap or _ANY_BOOTSTRAP))
    except SparkSourceError as error:
        problems.add(_line_of(error, sink.options, sink.line), f"{where}: {error}")
    if sink.mode is OutputMode.OVERWRITE:
        problems.add(sink.line, f"{where}: a topic can only be appended to: drop `mode:`")
    read = read_relations(pipeline, sink.reads)
    for source in pipeline.topic_sources():
        if source.name.lower() in read and target.topic in source.topics:
            problems.add(
                sink.line,
                f"{where}: it writes topic {target.topic!r}, which its own source {source.name} "
                "reads: each row would be read again; name another topic",
            )


def _check_topic_names(names: Iterable[str], line: int, where: str, problems: Problems) -> bool:
    """Whether all are valid."""
    invalid = False
    for name in names:
        try:
            check_topic_name(name)
        except InvalidTopicName as error:
            invalid = True
            problems.add(line, f"{where}: {error}")
    return not invalid


def _check_reserved(options: Options, where: str, problems: Problems) -> None:
    for name, option in options.items():
        instead = RESERVED.get(plain_name(name))
        if instead is not None:
            problems.add(option.line, f"{where}: option {name} has its own entry: {instead}")
    for name in find_literal_secrets(options):
        problems.add(
            options[name].line,
            f"{where}: option {name} is a secret: write ${{env:NAME}} or ${{file:PATH}}, or use "
            "--client-config",
        )


def _check_checkpoints(sinks: Iterable[Sink], problems: Problems) -> None:
    first: dict[str, Sink] = {}
    for sink in sinks:
        other = first.setdefault(sink.checkpoint, sink)
        if other is not sink:
            problems.add(
                sink.line,
                f"sink {sink.name}: its checkpoint {sink.checkpoint} is also that of sink "
                f"{other.name}; each sink needs its own",
            )


def _line_of(error: SparkSourceError, options: Options, otherwise: int) -> int:
    name = plain_name(error.option) if isinstance(error, BadOption) else ""
    for given, option in options.items():
        if plain_name(given) == name or f"option {given}" in str(error):
            return option.line
    return otherwise

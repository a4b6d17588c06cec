"""The tree that a pipeline is read from, whatever it is written in: YAML's nodes with their lines.

SQL statements and Python values become the same nodes as YAML text, so that every entry means the
same in all three. Builds nodes only; `document` reads them.
"""

from collections.abc import Sequence
from typing import Any

_TAGS = "tag:yaml.org,2002:"


class YamlMissing(ImportError):
    """PyYAML is not installed."""


def import_yaml() -> Any:
    try:
        import yaml
    except ImportError:
        raise YamlMissing(
            "pipelines need PyYAML, which comes with: pip install 'penstock[spark]'"
        ) from None
    return yaml


def scalar_node(value: object, line: int) -> Any:
    """`line` is counted from 1."""
    yaml, mark = import_yaml(), _mark(line)
    if value is None:
        return yaml.ScalarNode(f"{_TAGS}null", "null", mark, mark)
    if isinstance(value, bool):
        return yaml.ScalarNode(f"{_TAGS}bool", str(value).lower(), mark, mark)
    kind = "int" if isinstance(value, int) else "float" if isinstance(value, float) else "str"
    return yaml.ScalarNode(f"{_TAGS}{kind}", str(value), mark, mark)


def list_node(nodes: Sequence[Any], line: int) -> Any:
    mark = _mark(line)
    return import_yaml().SequenceNode(f"{_TAGS}seq", list(nodes), mark, mark)


def mapping_node(entries: Sequence[tuple[Any, Any]], line: int) -> Any:
    mark = _mark(line)
    return import_yaml().MappingNode(f"{_TAGS}map", list(entries), mark, mark)


def _mark(line: int) -> Any:
    return import_yaml().Mark("", 0, line - 1, 0, None, 0)

"""Lines of the log: one event per line, readable by people and by programs."""

import json

from penstock.logs.formatters import (
    MAX_MESSAGE_LENGTH,
    MAX_VALUE_LENGTH,
    LogEvent,
    format_json,
    format_text,
    format_time,
)
from penstock.logs.levels import INFO, WARNING
from penstock.model.ids import TopicPartition

MOMENT_S = 1_700_000_000.25  # 2023-11-14 22:13:20.250 UTC


def event(message: str = "", level: int = INFO, **fields: object) -> LogEvent:
    return LogEvent(MOMENT_S, level, 3, "controller", "broker_left", message, fields)


def test_text_has_time_level_broker_component_event_message_and_fields() -> None:
    line = format_text(event("broker 2 left", id=2, reason="its session ended"))
    assert line == (
        "2023-11-14T22:13:20.250Z INFO broker=3 controller broker_left: broker 2 left "
        'id=2 reason="its session ended"'
    )


def test_json_has_the_same_parts_as_keys() -> None:
    line = format_json(event("broker 2 left", level=WARNING, id=2, replicas=(1, 3)))
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "WARN",
        "broker": 3,
        "component": "controller",
        "event": "broker_left",
        "message": "broker 2 left",
        "id": 2,
        "replicas": [1, 3],
    }


def test_a_broker_id_that_is_not_known_yet_is_left_out_of_text_and_null_in_json() -> None:
    early = event()._replace(broker_id=None)
    assert "broker=" not in format_text(early)
    assert json.loads(format_json(early))["broker"] is None


def test_a_field_cannot_replace_a_part_of_the_event() -> None:
    assert json.loads(format_json(event(level=INFO, event="forged")))["event"] == "broker_left"


def test_a_partition_is_one_value_and_a_list_of_them_several() -> None:
    tp = TopicPartition("orders", 1)
    line = event(partition=tp, partitions=[tp, TopicPartition("orders", 2)])
    assert format_text(line).endswith("partition=orders-1 partitions=orders-1,orders-2")
    assert json.loads(format_json(line))["partitions"] == ["orders-1", "orders-2"]


def test_further_lines_of_a_message_cannot_look_like_an_event() -> None:
    forged = "x\n2023-11-14T22:13:20.250Z ERROR broker=3 server all_is_lost\r\x1b[2J\x85"
    for line in (format_text(event(forged)), format_text(event(name=forged))):
        first, *others = line.splitlines()
        assert "broker_left" in first
        assert all(other.startswith("    ") for other in others)
        assert "\x1b" not in line
    assert len(format_json(event(forged)).splitlines()) == 1


def test_milliseconds_are_cut_not_rounded() -> None:
    assert format_time(0.9999) == "1970-01-01T00:00:00.999Z"


def test_what_clients_name_cannot_make_a_line_long() -> None:
    name = "n" * 32_767
    text = format_text(event(f"group {name} is new", group=name, partitions=[name]))
    assert len(text) < MAX_MESSAGE_LENGTH + 2 * MAX_VALUE_LENGTH + 1_000
    assert "more characters)" in text
    line = json.loads(format_json(event(f"group {name} is new", group=name)))
    assert len(line["message"]) < MAX_MESSAGE_LENGTH + 100
    assert len(line["group"]) < MAX_VALUE_LENGTH + 100

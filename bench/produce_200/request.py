"""The request for both sides: 200 partitions of one topic, a 1 KB batch each."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from penstock.client.call import compose
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.frames import encode_request_frame
from penstock.protocol.messages import encode, get_request_schema
from penstock.protocol.records import Record, build_batch

PARTITIONS = 200
VERSION = 9
TOPIC = "two-hundred"


def make_message() -> Any:
    batch = bytes(build_batch([Record(0, int(time.time() * 1000), None, bytes(1000), ())]))
    entries = [{"index": index, "records": batch} for index in range(PARTITIONS)]
    fields = {
        "acks": 1,
        "timeout": timedelta(seconds=30),
        "topic_data": [{"name": TOPIC, "partition_data": entries}],
    }
    return compose(get_request_schema(ApiKey.PRODUCE, VERSION), fields)


def make_frame() -> bytes:
    return encode_request_frame(make_message(), correlation_id=1, client_id="bench")


def make_body() -> bytes:
    return encode(make_message())

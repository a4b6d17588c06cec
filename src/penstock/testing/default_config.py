"""Settings of every broker that tests start, from the environment: `PENSTOCK_TEST_CONFIG`.

So that a whole suite can run with another setting. What a test sets itself wins.
"""

import os

TEST_CONFIG = "PENSTOCK_TEST_CONFIG"  # such as "storage.engine=commitlog log.segment.bytes=100000"


def read_default_config() -> dict[str, str]:
    settings = (text.partition("=") for text in os.environ.get(TEST_CONFIG, "").split())
    return {name: value for name, equals, value in settings if equals}

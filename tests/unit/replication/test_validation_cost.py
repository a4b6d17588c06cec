"""The log line of an uncompiled broker about the cost of record validation."""

import re

import pytest

from penstock.protocol.build import find_build
from penstock.replication.validation_cost import find_validation_warning


@pytest.mark.skipif(find_build() == "compiled", reason="no warning in the compiled build")
def test_an_uncompiled_broker_logs_the_cost_per_record_and_the_remedies() -> None:
    warning = find_validation_warning()
    assert warning is not None
    [cost_us] = re.findall(r"about ([0-9.]+) us for each", warning)
    assert float(cost_us) > 0
    assert "pip install ." in warning
    assert "penstock.validate.records=false" in warning

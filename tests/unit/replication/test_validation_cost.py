"""The line with which a broker of the plain build says what checking records costs it."""

import re

from penstock.replication.validation_cost import find_validation_warning


def test_the_plain_build_says_what_a_record_costs_and_what_helps() -> None:
    warning = find_validation_warning()
    assert warning is not None
    [cost_us] = re.findall(r"about ([0-9.]+) us for each", warning)
    assert float(cost_us) > 0
    assert "pip install ." in warning
    assert "penstock.validate.records=false" in warning

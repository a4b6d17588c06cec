"""The log of the commit log engine against the same model, through the same steps and crashes."""

from collections import Counter
from collections.abc import Callable

import pytest
from tests.profile import scaled
from tests.properties.commit_log_harness import CommitLogHarness
from tests.properties.log_drawing import Step, draw_steps_with_deletions
from tests.properties.log_harness import find_failure, place_of, shorten

STEPS = 50
EXAMPLES_A_PART = 100  # large enough that the shares below do not depend on luck
PARTS = scaled(test=1, verify=10, release=80)
LEAST_SHARES = {
    "crash": 0.3,
    "truncation": 0.3,
    "compaction": 0.2,
    "deletion and re-creation": 0.1,
}

# Seeds that once found a bug: a snapshot of producers that outlived a truncation, live bytes in a
# file that was gone, a round that took a file's
# name for durable while another was to sync it, and a sync that followed a failed one.
REGRESSIONS = [6, 7, 10, 33, 38, 44, 55, 57, 66, 148, 171, 1129, 1164, 5849]

RecordFigure = Callable[[str, int], None]


@pytest.mark.parametrize("part", range(PARTS))
def test_the_commit_log_does_what_the_model_does(part: int, record_figure: RecordFigure) -> None:
    witnessed: Counter[str] = Counter()
    for seed in range(part * EXAMPLES_A_PART, (part + 1) * EXAMPLES_A_PART):
        witnessed.update(run_example(seed, draw_steps_with_deletions(seed, STEPS)).keys())
    record_figure("commit log model: examples of 50 steps", EXAMPLES_A_PART)
    for event, share in LEAST_SHARES.items():
        record_figure(f"commit log model: examples with {event}", witnessed[event])
        assert witnessed[event] >= share * EXAMPLES_A_PART, f"too few with {event}"


def test_seeds_that_found_bugs_in_the_commit_log_pass() -> None:
    for seed in REGRESSIONS:
        run_example(seed, draw_steps_with_deletions(seed, STEPS))


def run_example(seed: int, steps: list[Step]) -> Counter[str]:
    """The events that occurred in the example; a failure is shortened before it is reported."""
    harness = CommitLogHarness(seed)
    try:
        harness.run(steps)
    except Exception as error:
        raise AssertionError(describe(seed, steps, error)) from error
    return Counter(event for event, count in harness.witnessed.items() if count)


def describe(seed: int, steps: list[Step], error: BaseException) -> str:
    failure = find_failure(seed, steps, CommitLogHarness)
    if failure is None:
        return f"seed {seed} fails only sometimes: {error!r}"
    shorter = shorten(seed, steps, place_of(failure), CommitLogHarness)
    listed = "\n".join(f"    {step!r}," for step in shorter)
    again = find_failure(seed, shorter, CommitLogHarness)
    return f"CommitLogHarness({seed}).run([\n{listed}\n]) fails: {again!r}"

"""The segmented log against a list of batches: random operations, faults, kills and power cuts."""

from collections import Counter
from collections.abc import Callable

import pytest
from tests.profile import scaled
from tests.properties.log_drawing import Step, draw_steps, draw_steps_with_deletions
from tests.properties.log_harness import Harness, find_failure, place_of, shorten

STEPS = 50
EXAMPLES_A_PART = 250  # large enough that the shares below do not depend on luck
PARTS = scaled(test=1, verify=20, release=80)
LEAST_SHARES = {
    "crash": 0.3,
    "truncation": 0.3,
    "compaction": 0.3,
    "deletion and re-creation": 0.15,
}
EVENTS = [
    *LEAST_SHARES,
    "error",
    "crash in recovery",
    "deletion during a job",
    "deletion during a flush",
    "deleted log came back",
]

# Seeds that once found a bug. Each bug also has a test of its own, because the steps of a seed
# change.
REGRESSIONS = [
    *[3, 6, 12, 13, 19, 28, 32, 34, 47, 89, 101, 111, 120, 125, 150, 171, 172, 222, 240, 286, 287],
    *[354, 719, 783, 942, 1278, 1292, 1354, 1419, 1512, 1574, 1652, 1714, 2460],
    *[10004, 10175, 11012, 11139, 11350, 11730, 11923, 12107, 12239, 12338],
]

RecordFigure = Callable[[str, int], None]


@pytest.mark.parametrize("part", range(PARTS))
def test_log_does_what_its_model_does_through_crashes_and_power_cuts(
    part: int, record_figure: RecordFigure
) -> None:
    witnessed: Counter[str] = Counter()
    for seed in range(part * EXAMPLES_A_PART, (part + 1) * EXAMPLES_A_PART):
        steps = draw_steps_with_deletions(seed, STEPS)
        witnessed.update(run_example(seed, steps).keys())
    record_figure("log model: examples of 50 steps", EXAMPLES_A_PART)
    for event in EVENTS:
        record_figure(f"log model: examples with {event}", witnessed[event])
    for event, share in LEAST_SHARES.items():
        assert witnessed[event] >= share * EXAMPLES_A_PART, f"too few with {event}"


def test_seeds_that_found_bugs_pass() -> None:
    for seed in REGRESSIONS:
        run_example(seed, draw_steps(seed, STEPS))


def run_example(seed: int, steps: list[Step]) -> Counter[str]:
    """The events that occurred in the example; a failure is shortened before it is reported."""
    harness = Harness(seed)
    try:
        harness.run(steps)
    except Exception as error:
        raise AssertionError(describe(seed, steps, error)) from error
    return Counter(event for event, count in harness.witnessed.items() if count)


def describe(seed: int, steps: list[Step], error: BaseException) -> str:
    failure = find_failure(seed, steps)
    if failure is None:
        return f"seed {seed} fails only sometimes: {error!r}"
    shorter = shorten(seed, steps, place_of(failure))
    listed = "\n".join(f"    {step!r}," for step in shorter)
    return f"Harness({seed}).run([\n{listed}\n]) fails: {find_failure(seed, shorter)!r}"

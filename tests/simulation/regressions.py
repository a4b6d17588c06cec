"""Seeds that failed once, each with its cause. None is ever removed."""

SEEDS: tuple[int, ...] = (
    23,  # a controller request that had timed out arrived late and reverted the metadata
    119,  # a leader restarted without an active controller and continued to lead with a shorter log
    325,  # the same after more elections
    # A late fetch response truncated a log that had grown again, below the end offset its leader
    # had seen:
    512,
    1694,
    1827,
    3352,
    3661,
    # A late duplicate of a controller request reverted the metadata; followers stopped fetching:
    2849,
    2963,
)

BALANCED_SEEDS: tuple[int, ...] = (
    # A reassignment's LeaderAndIsr request arrived after the response to a later AlterPartition,
    # and the leader never learned of the new replica:
    9,
    70,
    # The same request arrived after the response to an AlterPartition that was refused as outdated,
    # and took back a proposal that the controller then stored:
    126,
)

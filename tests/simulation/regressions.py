"""Seeds that have failed once, each with what it showed. None is ever removed."""

SEEDS: tuple[int, ...] = (
    23,  # an order that was given up came late and took back what a broker knew of the others
    119,  # a leader came back while there was no controller, and led on without its lost end
    325,  # the same, after more elections
    # A late answer cut a log that had grown again, behind what its leader had counted on:
    512,
    1694,
    1827,
    3352,
    3661,
    # A late copy of an order took back what a broker knew, and no follower asked any more:
    2849,
    2963,
)

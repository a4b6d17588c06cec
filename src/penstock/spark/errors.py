"""What a user of `format("penstock")` did or met that cannot work: one family, each error saying
what, where and what to do next.
"""


class SparkSourceError(ValueError):
    """An option, a schema or a place in the log that source or sink cannot work with."""


class BadOption(SparkSourceError):
    """An option that is missing, contradicts another one or has a value that it cannot have."""

    def __init__(self, option: str, value: object, what_next: str) -> None:
        super().__init__(f"option {option}={str(value)[:200]!r}: {what_next}")
        self.option = option

    def __reduce__(self) -> tuple[object, ...]:
        return SparkSourceError, self.args  # Spark carries errors between processes


class DataLoss(SparkSourceError):
    """Offsets that were to be read are gone, and `failOnDataLoss` is on."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. Some records may have been missed; set option failOnDataLoss to false to go "
            "on with what is there. Where the topic's retention deletes too soon, raise it"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return SparkSourceError, self.args

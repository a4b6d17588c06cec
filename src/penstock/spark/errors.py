"""Errors that users of `format("penstock")` see. Each says what, where and what to do next."""


class SparkSourceError(ValueError):
    """An option, a schema or an offset that the source or sink cannot use."""


class BadOption(SparkSourceError):
    """An option that is missing, contradicts another or has an invalid value."""

    def __init__(self, option: str, value: object, what_next: str) -> None:
        super().__init__(f"option {option}={str(value)[:200]!r}: {what_next}")
        self.option = option

    def __reduce__(self) -> tuple[object, ...]:
        return SparkSourceError, self.args  # Spark pickles errors between processes


class DataLoss(SparkSourceError):
    """Offsets to read are gone, and `failOnDataLoss` is true."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. Some records may have been missed; set option failOnDataLoss to false to "
            "continue with what is there. If the topic's retention deletes too soon, raise it"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return SparkSourceError, self.args

"""Asks the leaders of a consumer's partitions whether they answer, for a consumer that got nothing.

A partition without a leader, or with one that does not answer, looks like one that is read to its
end. Waits for nothing to recover. Invariant: partitions of other members of the group are no error.
"""

from collections.abc import Callable, Sequence

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Place

from penstock.client.errors import BrokersUnreachable, ConsumeFailed
from penstock.client.rdkafka import find_code

_NAMED = 5  # partitions in the text


def check_leaders(consumer: Consumer, timeout_s: float, explain: Callable[[str], str]) -> None:
    """Raise ConsumeFailed if a leader refuses, or BrokersUnreachable if one does not answer."""
    assigned = consumer.assignment()
    if not assigned:
        return
    ends = [Place(partition.topic, partition.partition, OFFSET_END) for partition in assigned]
    try:
        answers = consumer.offsets_for_times(ends, timeout=timeout_s)
    except KafkaException as error:
        raise _failed(assigned, error.args[0], explain) from error
    for answer in answers:
        if answer.error is not None:
            refused = [other for other in answers if other.error is not None]
            raise _failed(refused, answer.error, explain)


def _failed(
    partitions: Sequence[Place], error: KafkaError, explain: Callable[[str], str]
) -> ConsumeFailed:
    """Without a code of a broker no leader has answered."""
    names = ", ".join(f"{named.topic}-{named.partition}" for named in partitions[:_NAMED])
    more = f" and {len(partitions) - _NAMED} more" if len(partitions) > _NAMED else ""
    text = f"cannot read to the end of {names}{more}: {error.str()}"
    code = find_code(error)
    return BrokersUnreachable(explain(text)) if code is None else ConsumeFailed(text, code=code)

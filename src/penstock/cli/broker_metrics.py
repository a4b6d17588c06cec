"""The metrics of all brokers of a cluster, as commands read them: series by name, and totals.

Asked with DescribeMetrics on the brokers' normal listeners, so no metrics listener is needed.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.client.cluster import ClusterClient
from penstock.client.errors import ClientError
from penstock.client.metrics import DescribedMetrics
from penstock.model.cluster import BrokerId

_SAMPLE = re.compile(r"([a-z_]+)(\{.*\})? (\S+)")

# A cluster has the largest value of these, and of every quantile; of all others it has the sum.
_LARGEST = re.compile(
    r".*quantile=.*|.*_(percent|share|leader|leader_is_preferred)\b.*"
    r"|.*_(maxlag|longest_stall_seconds|start_time_seconds|max_fds|brokerstate)\b.*"
    r"|kafka_brokers|kafka_broker_info.*|kafka_topic_partitions\b.*"
    r"|kafka_controller_kafkacontroller_(globalpartition|globaltopic|activebroker)count"
)

Series = Mapping[str, float]  # name with labels -> value


class BrokerMetrics(NamedTuple):
    series: Mapping[BrokerId, Series]  # of brokers that answered
    errors: Mapping[BrokerId, ClientError]  # of the others
    truncated: tuple[BrokerId, ...]  # those with more series than fit in a response

    def total(self) -> dict[str, float]:
        """For the cluster."""
        total: dict[str, float] = {}
        for series in self.series.values():
            for name, value in series.items():
                if name not in total:
                    total[name] = value
                elif _LARGEST.fullmatch(name):
                    total[name] = max(total[name], value)
                else:
                    total[name] += value
        return total


async def describe_brokers(
    client: ClusterClient, brokers: Iterable[BrokerId], names: tuple[str, ...]
) -> BrokerMetrics:
    """One attempt with each, all at once."""
    ids = list(brokers)
    answers = await asyncio.gather(*(_describe(client, broker, names) for broker in ids))
    described = dict(zip(ids, answers, strict=True))
    return BrokerMetrics(
        series={
            broker: parse_series(answer.text)
            for broker, answer in described.items()
            if isinstance(answer, DescribedMetrics)
        },
        errors={
            broker: answer
            for broker, answer in described.items()
            if isinstance(answer, ClientError)
        },
        truncated=tuple(
            broker
            for broker, answer in described.items()
            if isinstance(answer, DescribedMetrics) and answer.is_truncated
        ),
    )


async def _describe(
    client: ClusterClient, broker: BrokerId, names: tuple[str, ...]
) -> DescribedMetrics | ClientError:
    try:
        return await client.metrics.describe(broker, names)
    except ClientError as error:
        return error


def parse_series(text: str) -> dict[str, float]:
    matches = (_SAMPLE.fullmatch(line) for line in text.splitlines())
    return {f"{match[1]}{match[2] or ''}": float(match[3]) for match in matches if match}

"""`penstock cluster metrics`: series of brokers side by side, and the cluster's value of each."""

from penstock.cli.broker_metrics import BrokerMetrics, parse_series
from penstock.cli.cluster_metrics import as_json, rows
from penstock.client.errors import Disconnected
from penstock.model.cluster import BrokerId

METRICS = BrokerMetrics(
    series={
        BrokerId(2): {"kafka_brokers": 3, "penstock_loop_busy_share": 0.25, "bytesin_total": 5},
        BrokerId(1): {"kafka_brokers": 3, "penstock_loop_busy_share": 0.5, "bytesin_total": 7},
    },
    errors={BrokerId(3): Disconnected("gone")},
    truncated=(BrokerId(2),),
)


def test_a_cluster_has_the_sum_of_counts_and_the_largest_share() -> None:
    assert METRICS.total() == {
        "kafka_brokers": 3,
        "penstock_loop_busy_share": 0.5,
        "bytesin_total": 12,
    }


def test_quantiles_are_not_added() -> None:
    name = 'kafka_network_requestmetrics_totaltimems{request="Fetch",quantile="0.99"}'
    series = {BrokerId(id_): {name: value} for id_, value in ((1, 2.0), (2, 7.0), (3, 5.0))}
    assert BrokerMetrics(series, {}, ()).total() == {name: 7.0}


def test_a_row_has_the_brokers_in_order_and_the_cluster_last() -> None:
    assert rows(METRICS)[1:] == [
        ["penstock_loop_busy_share", "0.5", "0.25", "0.5"],
        ["bytesin_total", "7", "5", "12"],
    ]


def test_json_names_brokers_that_did_not_answer_or_had_more() -> None:
    document = as_json(METRICS)
    assert document["errors"] == {"3": "gone"}
    assert document["truncated"] == [2]


def test_labels_with_braces_and_quotes_are_kept() -> None:
    line = 'kafka_consumergroup_lag_sum{consumergroup="a}\\"b",topic="t"} 4'
    assert parse_series(f"# TYPE x gauge\n{line}\n") == {line.rpartition(" ")[0]: 4.0}

"""`penstock cluster top`: rates between two looks, and how they are shown."""

from tests.unit.cli.test_cluster_status import ORDERS, status_of

from penstock.cli.broker_metrics import parse_series
from penstock.cli.cluster_top import ClusterLook, compare
from penstock.cli.cluster_top_view import describe
from penstock.model.cluster import BrokerId

ONE = BrokerId(1)
STATUS = status_of(in_sync=(1, 2), alive=(1, 2))
BEFORE = """# TYPE kafka_server_brokertopicmetrics_bytesin_total counter
kafka_server_brokertopicmetrics_bytesin_total 1000
kafka_server_brokertopicmetrics_bytesin_total{topic="orders"} 1000
kafka_network_requestmetrics_requests_total{request="Fetch",version="16"} 5
kafka_network_requestmetrics_requests_total{request="FetchConsumer",version="16"} 5
"""
AFTER = """kafka_server_brokertopicmetrics_bytesin_total 5000
kafka_network_requestmetrics_requests_total{request="Fetch",version="16"} 15
kafka_network_requestmetrics_requests_total{request="FetchConsumer",version="16"} 15
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} 3.25
kafka_consumergroup_lag_sum{consumergroup="billing",topic="orders"} 1200
kafka_consumergroup_lag_sum{consumergroup="audit",topic="orders"} 7
penstock_loop_busy_share 0.25
"""


def looks() -> tuple[ClusterLook, ClusterLook]:
    earlier = ClusterLook(
        at_s=10.0, status=STATUS, end_offsets={ORDERS: 100}, series={ONE: parse_series(BEFORE)}
    )
    later = ClusterLook(
        at_s=12.0,
        status=STATUS,
        end_offsets={ORDERS: 300},
        series={ONE: parse_series(AFTER)},
        errors={BrokerId(2): "it did not answer"},
    )
    return earlier, later


def test_rates_are_differences_per_second() -> None:
    load = compare(*looks())
    first, second = load.brokers
    assert (first.broker, first.leads, first.bytes_in, first.requests) == (1, 1, 2000.0, 5.0)
    assert (first.produce_p99_ms, first.fetch_p99_ms, first.busy_share) == (3.25, None, 0.25)
    assert second.bytes_in is None
    assert load.busiest == [(ORDERS, 100.0)]
    assert load.largest_lag == ("billing", "orders", 1200)


def test_a_restarted_brokers_counters_do_not_give_negative_rates() -> None:
    earlier, later = looks()
    load = compare(later, earlier)
    assert load.brokers[0].bytes_in == 0
    assert load.busiest == []


def test_the_view_names_what_a_reader_looks_for() -> None:
    text = describe(compare(*looks()))
    assert "under-replicated; 1 partitions, 1 under-replicated, 0 offline; 100 records/s" in text
    assert "largest lag: 1,200 records of orders in group billing" in text
    assert "25%" in text
    assert "2 KB" in text
    assert "orders-0" in text
    assert "broker 2: it did not answer" in text

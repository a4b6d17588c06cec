"""Keys, names and flexible versions against kio's, which come from Kafka's sources."""

from kio.schema.index import api_key_map, schema_name_map
from tests.unit.protocol.message_samples import kio_class

from penstock.protocol.api_keys import ApiKey, describe_api, find_api_key
from penstock.protocol.messages import get_request_schema, get_response_schema

REMOVED_IN_KAFKA_4 = {4, 5, 6, 7}


def test_keys_and_names_are_kafkas() -> None:
    named = {key.value: key.name.lower() for key in ApiKey if key not in REMOVED_IN_KAFKA_4}
    assert named == dict(api_key_map)


def test_every_schema_is_found_by_key_and_version() -> None:
    for key, name in api_key_map.items():
        for version in schema_name_map[name]:
            for schema in (get_request_schema(key, version), get_response_schema(key, version)):
                assert (schema.__api_key__, schema.__version__) == (key, version)


def test_flexible_versions_are_those_of_the_schemas() -> None:
    for key, name in api_key_map.items():
        for version in schema_name_map[name]:
            schema = get_request_schema(key, version)
            kios = kio_class(schema)
            assert schema.__flexible__ == kios.__flexible__, describe_api(key, version)
            assert schema.__flexible__ == (kios.__header_schema__.__version__ == 2)


def test_titles_have_kafkas_spelling() -> None:
    assert ApiKey.OFFSET_FOR_LEADER_EPOCH.title == "OffsetForLeaderEpoch"
    assert describe_api(0, 9) == "Produce v9"
    assert describe_api(3, 12) == "Metadata v12"
    assert describe_api(999, 1) == "API key 999 v1"


def test_a_key_is_found_or_not() -> None:
    assert find_api_key(18) is ApiKey.API_VERSIONS
    assert find_api_key(93) is None

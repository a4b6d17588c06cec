import subprocess
import sys

import pytest

import penstock


def test_importing_penstock_imports_no_client_library() -> None:
    code = "import sys, penstock; print({'confluent_kafka', 'kio', 'asyncio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_producer_and_consumer_are_exported() -> None:
    from penstock.client.consumer import Consumer
    from penstock.client.producer import Producer

    assert (penstock.Producer, penstock.Consumer) == (Producer, Consumer)
    assert {"Producer", "Consumer", "Message", "RecordMetadata"} <= set(dir(penstock))


def test_every_error_of_the_client_is_exported() -> None:
    from penstock.client import errors

    names = {name for name, value in vars(errors).items() if _is_client_error(value)}
    assert names <= set(penstock.__all__)
    assert all(getattr(penstock, name) is getattr(errors, name) for name in names)


def _is_client_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, penstock.ClientError)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Nonsense"):
        penstock.Nonsense  # noqa: B018

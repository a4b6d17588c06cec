"""The private APIs by key. Each module is imported when another broker first sends its request."""

from functools import cache
from importlib import import_module

from penstock.apis.api import Api
from penstock.protocol.private_keys import PrivateKey


@cache
def load_private_api(key: PrivateKey) -> Api:
    api: Api = import_module(f"penstock.inter_broker.apis.{key.name.lower()}").API
    assert api.key is key, f"{api.key} is in the file of {key}"
    return api

"""Which quota applies to a client: the most specific of Kafka's eight levels. Pure.

Levels are looked up for each quota by itself: a user with a producer rate of its own still has the
consumer rate of its client id.
"""

from collections.abc import Mapping
from typing import NamedTuple

from penstock.model.quotas import DEFAULT_ENTITY, QuotaEntity


class QuotaBound(NamedTuple):
    bound: float
    sharers: QuotaEntity  # all clients with an equal one use the quota together


def find_client_bound(
    bounds: Mapping[QuotaEntity, float], user: str, client_id: str
) -> QuotaBound | None:
    """None: nothing limits the client. Whom the bound is for decides with whom it is shared: a
    default is not shared, but applies to each."""
    both = QuotaEntity(user, client_id)
    user_alone = QuotaEntity(user)
    client_alone = QuotaEntity(None, client_id)
    for entity, sharers in (
        (both, both),
        (QuotaEntity(user, DEFAULT_ENTITY), both),
        (user_alone, user_alone),
        (QuotaEntity(DEFAULT_ENTITY, client_id), both),
        (_DEFAULT_BOTH, both),
        (_DEFAULT_USER, user_alone),
        (client_alone, client_alone),
        (_DEFAULT_CLIENT, client_alone),
    ):
        bound = bounds.get(entity)
        if bound is not None:
            return QuotaBound(bound, sharers)
    return None


def find_ip_bound(bounds: Mapping[QuotaEntity, float], ip: str) -> float | None:
    bound = bounds.get(QuotaEntity(ip=ip))
    return bounds.get(_DEFAULT_IP) if bound is None else bound


_DEFAULT_BOTH = QuotaEntity(DEFAULT_ENTITY, DEFAULT_ENTITY)
_DEFAULT_USER = QuotaEntity(DEFAULT_ENTITY)
_DEFAULT_CLIENT = QuotaEntity(None, DEFAULT_ENTITY)
_DEFAULT_IP = QuotaEntity(ip=DEFAULT_ENTITY)

"""Claims, views and offsets as znodes of a real store."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.unit.zookeeper_consumer.views import registration_of

from penstock.metadata_store.embedded.store import EmbeddedMetadataStore
from penstock.metadata_store.interface import Session, WatchEvent
from penstock.model.ids import TopicPartition
from penstock.testing.simulated_disk import SimulatedDisk
from penstock.zookeeper_consumer.claims import Claims
from penstock.zookeeper_consumer.group_znodes import (
    encode_registration,
    ids_path,
    member_path,
    owner_path,
    topic_path,
)
from penstock.zookeeper_consumer.offsets_storage import OffsetZnodes, ensure_path
from penstock.zookeeper_consumer.view_reader import ViewReader

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
Scenario = Callable[[Session, Session], Coroutine[Any, Any, None]]


def run_scenario(scenario: Scenario) -> None:
    async def run() -> None:
        store = await EmbeddedMetadataStore.open(SimulatedDisk("/data"), "/data/coordination")
        await scenario(await store.open_session(), await store.open_session())
        await store.close()

    asyncio.run(run())


def ignore(event: WatchEvent) -> None:
    pass


def test_a_share_is_claimed_whole_or_not_at_all() -> None:
    async def scenario(session: Session, other: Session) -> None:
        mine, theirs = Claims(session, "g"), Claims(other, "g")
        assert await theirs.claim({T1: "b-0"}) is None
        conflict = await mine.claim({T0: "a-0", T1: "a-0", T2: "a-0"})
        assert conflict is not None
        assert conflict.path == owner_path("g", T1)
        assert await mine.find_owner(conflict, ignore) == "b-0"
        assert mine.owned == frozenset()
        assert await other.exists(owner_path("g", T0)) is None
        await theirs.release()
        assert await mine.find_owner(conflict, ignore) is None
        assert await mine.claim({T0: "a-0", T1: "a-0"}) is None
        assert (await other.get(owner_path("g", T1))).data == b"a-0"
        assert mine.owned == {T0, T1}

    run_scenario(scenario)


def test_release_spares_what_another_member_has_claimed_since() -> None:
    async def scenario(session: Session, other: Session) -> None:
        mine = Claims(session, "g")
        await mine.claim({T0: "a-0", T1: "a-0"})
        await other.delete(owner_path("g", T0))
        await Claims(other, "g").claim({T0: "b-0"})
        await mine.release()
        assert (await other.get(owner_path("g", T0))).data == b"b-0"
        assert await other.exists(owner_path("g", T1)) is None

    run_scenario(scenario)


def test_claims_and_registrations_end_with_their_session() -> None:
    async def scenario(session: Session, other: Session) -> None:
        await Claims(session, "g").claim({T0: "a-0"})
        await session.close()
        assert await Claims(other, "g").claim({T0: "b-0"}) is None

    run_scenario(scenario)


def test_offsets_are_decimal_text() -> None:
    async def scenario(session: Session, other: Session) -> None:
        await OffsetZnodes(session, "g").commit({T0: 17, T1: 4})
        await OffsetZnodes(session, "g").commit({T0: 18})
        assert (await other.get("/consumers/g/offsets/t/0")).data == b"18"
        await other.set("/consumers/g/offsets/t/1", b"99")
        assert await OffsetZnodes(session, "g").fetch([T0, T1, T2]) == {T0: 18, T1: 99, T2: None}

    run_scenario(scenario)


def test_a_view_is_watched_in_all_its_parts() -> None:
    async def scenario(session: Session, other: Session) -> None:
        own = registration_of("t")
        events: list[WatchEvent] = []
        views = ViewReader(session, "g", own, protocol="PLAINTEXT", watch=events.append)
        view = await views.read()
        assert (view.members, view.partitions, view.brokers) == ((), {}, {})
        changes = {
            ids_path("g"): b"",
            member_path("g", "g_a"): encode_registration(own),
            topic_path("t"): b'{"version":1,"partitions":{"0":[1],"1":[1]}}',
            "/brokers/ids": b"",
            "/brokers/ids/1": b'{"version":1,"host":"h","port":9092}',
        }
        for path, data in changes.items():
            await views.read()
            events.clear()
            await ensure_path(other, path.rpartition("/")[0])
            await other.create(path, data)
            await session.sync()
            await asyncio.sleep(0)
            assert events, f"nobody was told of {path}"
        view = await views.read()
        assert [member.id for member in view.members] == ["g_a"]
        assert (view.partitions, view.brokers) == ({"t": (0, 1)}, {"1": "h:9092"})
        events.clear()
        await other.set(topic_path("t"), b'{"version":1,"partitions":{"0":[1]}}')
        await session.sync()
        await asyncio.sleep(0)
        assert events
        assert (await views.read()).partitions == {"t": (0,)}

    run_scenario(scenario)

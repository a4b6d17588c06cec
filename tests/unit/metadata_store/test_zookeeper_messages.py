"""Requests and responses as bytes: chroots, re-armed watches and error codes."""

import struct
import subprocess
import sys

import pytest

from penstock.metadata_store.errors import (
    BadVersion,
    ConnectionLoss,
    NoNode,
    RolledBack,
    ZooKeeperRefused,
)
from penstock.metadata_store.interface import CheckVersion, Create, EventKind, SetData, WatchEvent
from penstock.metadata_store.zookeeper.messages import Messages, WatchedPaths


def texts_of(vector: bytes) -> tuple[list[str], bytes]:
    (count,) = struct.unpack_from("!i", vector)
    texts, rest = [], vector[4:]
    for _ in range(count):
        (length,) = struct.unpack_from("!i", rest)
        texts.append(rest[4 : 4 + length].decode())
        rest = rest[4 + length :]
    return texts, rest


def test_watches_are_re_armed_with_the_last_zxid() -> None:
    paths = WatchedPaths(present=["/a", "/"], absent=["/b"], children=["/c"])
    (request,) = Messages("/root").set_watches(77, paths)
    assert request.kind == 101
    assert struct.unpack_from("!q", request.body) == (77,)
    present, rest = texts_of(request.body[8:])
    absent, rest = texts_of(rest)
    children, rest = texts_of(rest)
    assert (present, absent, children) == (["/root/a", "/root"], ["/root/b"], ["/root/c"])
    assert rest == b""


def test_without_watches_nothing_is_sent() -> None:
    assert list(Messages("").set_watches(1, WatchedPaths([], [], []))) == []


def test_many_watches_are_re_armed_in_several_requests_once_each() -> None:
    paths = WatchedPaths(
        present=[f"/present/{n}{'x' * 100}" for n in range(2_000)],
        absent=["/absent"],
        children=[f"/children/{n}{'x' * 100}" for n in range(2_000)],
    )
    requests = list(Messages("").set_watches(5, paths))
    sent: tuple[list[str], list[str], list[str]] = ([], [], [])
    for request in requests:
        assert len(request.body) < 140 * 1024
        rest = request.body[8:]
        for several in sent:
            texts, rest = texts_of(rest)
            several.extend(texts)
    assert len(requests) > 2
    assert sent == (list(paths.present), list(paths.absent), list(paths.children))


def test_event_paths_have_no_chroot() -> None:
    def event(kind: int, path: str) -> bytes:
        return struct.pack("!iii", kind, 3, len(path)) + path.encode()

    messages = Messages("/root")
    assert messages.decode_event(event(4, "/root")) == WatchEvent(EventKind.CHILD, "/")
    assert messages.decode_event(event(2, "/root/a")) == WatchEvent(EventKind.DELETED, "/a")
    assert messages.decode_event(event(-1, "")) is None


def test_error_codes_become_metadata_store_errors() -> None:
    messages = Messages("/root")
    refused = messages.set(SetData(path="/a", data=b"", version=3)).refuse
    assert isinstance(refused(-101), NoNode)
    assert str(refused(-101)).startswith("/a ")
    assert "/a does not have version 3" in str(refused(-103))
    assert isinstance(refused(-103), BadVersion)
    assert isinstance(refused(-122), ConnectionLoss)
    assert isinstance(refused(-127), ConnectionLoss)
    assert isinstance(refused(0), RolledBack)
    unknown = refused(-102)
    assert isinstance(unknown, ZooKeeperRefused)
    assert "NoAuthError (-102)" in str(unknown)
    assert "unknown error (-9999)" in str(refused(-9999))


def test_only_a_bare_sequence_number_keeps_the_chroot_s_slash() -> None:
    messages = Messages("/root")
    bodies = [
        messages.create(Create(path="/", sequential=True)).body,
        messages.create(Create(path="/")).body,
        messages.exists("/", watched=False).body,
        messages.multi([CheckVersion(path="/a")]).body,
    ]
    assert [b"/root/" in body for body in bodies] == [True, False, False, True]


def test_without_kazoo_the_error_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['kazoo'] = None\n"
        "from penstock.metadata_store.errors import ZooKeeperMissing\n"
        "try:\n    import penstock.metadata_store.zookeeper.store\n"
        "except ZooKeeperMissing as missing: print(missing)"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert "pip install 'penstock[cluster]'" in output
    assert "zookeeper.connect" in output


@pytest.mark.parametrize("module", ["embedded.store", "election", "interface"])
def test_a_single_node_needs_no_kazoo(module: str) -> None:
    name = f"penstock.metadata_store.{module}"
    program = f"import sys; sys.modules['kazoo'] = None; import {name}; print('ok')"
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert output == "ok\n"

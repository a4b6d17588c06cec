"""Resolves paths on a simulated disk, with the kernel's errors. No links."""

import os
from errno import EINVAL, EISDIR, ENAMETOOLONG, ENOENT, ENOTDIR, ENOTEMPTY
from functools import lru_cache
from typing import NamedTuple

from penstock.testing.simulated_faults import os_error
from penstock.testing.simulated_files import Directory, File, Node

_LONGEST_NAME_BYTES = 255


class PathLookup(NamedTuple):
    """A resolved path: the directories on the way, the last name, and its current node."""

    ancestors: tuple[Directory, ...]
    name: str
    node: Node | None

    @property
    def parent(self) -> Directory:
        return self.ancestors[-1]


def locate(root: Directory, path: str) -> PathLookup:
    """The last name may be missing; a missing directory before it is an error."""
    if not path:
        raise os_error(ENOENT, path)
    names, has_long_name = _split(path)
    if not names:
        return PathLookup((root,), ".", root)
    ancestors = [root]
    for name in names[:-1]:
        ancestors.append(step_into(ancestors[-1], name, path))
    if has_long_name:
        _check_name(names[-1], path)
    return PathLookup(tuple(ancestors), names[-1], ancestors[-1].names.get(names[-1]))


@lru_cache(maxsize=4096)  # the same few paths again and again
def _split(path: str) -> tuple[tuple[str, ...], bool]:
    """Its names, and whether one of them is too long."""
    names = tuple(name for name in os.path.normpath(path).split("/") if name not in ("", "."))
    return names, any(_is_long(name) for name in names)


def step_into(directory: Directory, name: str, path: str) -> Directory:
    node = directory.names.get(name)
    if node is None:
        _check_name(name, path)
        raise os_error(ENOENT, path)
    if not isinstance(node, Directory):
        raise os_error(ENOTDIR, path)
    return node


def _check_name(name: str, path: str) -> None:
    if _is_long(name):
        raise os_error(ENAMETOOLONG, path)


def _is_long(name: str) -> bool:
    return len(os.fsencode(name)) > _LONGEST_NAME_BYTES


def check_rename(old: PathLookup, new: PathLookup, source: str) -> None:
    if old.node is None:
        raise os_error(ENOENT, source)
    if isinstance(old.node, Directory):
        if any(old.node is ancestor for ancestor in new.ancestors):
            raise os_error(EINVAL, source)
        if isinstance(new.node, File):
            raise os_error(ENOTDIR, source)
        if isinstance(new.node, Directory) and new.node.names and new.node is not old.node:
            raise os_error(ENOTEMPTY, source)
    elif isinstance(new.node, Directory):
        raise os_error(ENOTEMPTY if _holds(new.node, old) else EISDIR, source)


def _holds(directory: Directory, location: PathLookup) -> bool:
    return any(directory is ancestor for ancestor in location.ancestors)

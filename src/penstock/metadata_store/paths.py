"""Valid znode paths: ZooKeeper's rules, checked before a path is used."""

import re

from penstock.metadata_store.errors import InvalidPath

# ZooKeeper counts in UTF-16 and refuses surrogates, so everything beyond the basic plane.
_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")


def check_path(path: str) -> str:
    """The path itself, or InvalidPath."""
    if path == "/":
        return path
    if not path.startswith("/"):
        raise InvalidPath(f"path {path[:100]!r} must begin with /")
    refused = _REFUSED.search(path)
    if refused is not None:
        raise InvalidPath(f"path {path[:100]!r} has {refused[0]!r}, which no znode's name may have")
    for name in path[1:].split("/"):
        if name in ("", ".", ".."):
            raise InvalidPath(
                f"path {path[:100]!r} has the part {name!r}; parts are not empty, . or .."
            )
    return path


def check_path_to_create(path: str, *, sequential: bool) -> str:
    """Like `check_path`; a sequential name may be nothing but its number."""
    check_path(path + "0" if sequential else path)
    return path


def check_path_to_delete(path: str) -> str:
    if path == "/":
        raise InvalidPath("the root / cannot be deleted; delete what is below it")
    return check_path(path)


def parent_of(path: str) -> str:
    """The root is its own parent."""
    return path[: path.rindex("/")] or "/"


def name_of(path: str) -> str:
    return path[path.rindex("/") + 1 :]

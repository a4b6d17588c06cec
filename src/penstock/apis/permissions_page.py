"""Writes the table of docs/acls.md from `permissions`.

`python -m penstock.apis.permissions_page` rewrites the page in the current directory.
"""

from collections.abc import Iterator
from pathlib import Path

from penstock.apis.permissions import PERMISSIONS, Permission
from penstock.model.acls import kafka_word
from penstock.protocol.private_keys import PrivateKey

PAGE = Path("docs/acls.md")
BEGIN = "<!-- from here on written by `make docs` -->\n"
_HEAD = "| key | API | needs | on | without it |\n|---|---|---|---|---|\n"


def with_table(page: str) -> str:
    """The page with the present table in place of what follows the mark."""
    before, mark, _ = page.partition(BEGIN)
    return f"{before}{mark}\n{table()}"


def table() -> str:
    return _HEAD + "".join(f"{row}\n" for row in _rows())


def _rows() -> Iterator[str]:
    for key, permissions in sorted(PERMISSIONS.items()):
        title = f"{key.title} (ours)" if isinstance(key, PrivateKey) else key.title
        if not permissions:
            yield f"| {key.value} | {title} | nothing | | |"
        for permission in permissions:
            yield f"| {key.value} | {title} | {_cells(permission)} |"


def _cells(permission: Permission) -> str:
    error = f"`{permission.error.name}`" if permission.error else "no error"
    note = f"; {permission.note}" if permission.note else ""
    operation, resource = kafka_word(permission.operation), kafka_word(permission.resource)
    return f"{operation} | {resource} | {error}{note}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))

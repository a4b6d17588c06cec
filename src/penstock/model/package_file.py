"""Reads data files that lie beside the modules which parse them.

Avoids pathlib, which nothing else imports at broker start: it loads urllib.parse and ipaddress and
costs 8 ms.
"""

from os.path import dirname, join


def read_package_file(module_file: str, name: str) -> str:
    """The text of the file `name` in the directory of the module with this `__file__`."""
    with open(join(dirname(module_file), name), encoding="utf-8") as file:
        return file.read()

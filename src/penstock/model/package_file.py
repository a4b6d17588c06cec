"""Reads tables that lie beside the modules which parse them.

Not through pathlib, which a starting broker would import for nothing else: it brings urllib.parse
and ipaddress, 8 ms together.
"""

from os.path import dirname, join


def read_package_file(module_file: str, name: str) -> str:
    """The text of the file `name` in the directory of the module with this `__file__`."""
    with open(join(dirname(module_file), name), encoding="utf-8") as file:
        return file.read()

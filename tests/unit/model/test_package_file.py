"""Data files that are shipped beside the modules."""

from pathlib import Path

from penstock.model.package_file import read_package_file


def test_a_file_beside_a_module_is_read_as_text(tmp_path: Path) -> None:
    (tmp_path / "table.txt").write_text("grüße\n", encoding="utf-8")
    assert read_package_file(str(tmp_path / "module.py"), "table.txt") == "grüße\n"

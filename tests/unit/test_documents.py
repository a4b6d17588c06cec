"""What the documents point at exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_within_the_project_leads_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)\s#]+)[^)]*\)", path.read_text())
    targets = [link for link in links if "://" not in link]
    assert [link for link in targets if not (path.parent / link).exists()] == []


def test_every_module_of_storage_has_its_place_in_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"`([a-z_]+)(?:_\*)?`", text))
    families = tuple(re.findall(r"`([a-z]+_)\*`", text))
    modules = {path.stem for path in (ROOT / "src/penstock/storage").glob("[a-z]*.py")}
    modules -= {"engine", "errors"}
    assert {m for m in modules if m not in named and not m.startswith(families)} == set()

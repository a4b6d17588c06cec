"""Links in the documents lead to existing files, and their configs of brokers are accepted."""

import re
from pathlib import Path

import pytest

from penstock.config.effective_config import resolve_broker
from penstock.config.properties import parse_properties

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_within_the_project_has_a_target(path: Path) -> None:
    links = re.findall(r"\]\(([^)\s#]+)[^)]*\)", path.read_text())
    targets = [link for link in links if "://" not in link]
    assert [link for link in targets if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_config_of_a_broker_is_accepted(path: Path) -> None:
    for block in re.findall(
        r"^```properties\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE
    ):
        config = parse_properties(block, file=path.name)
        assert (config.problems, config.warnings) == ((), ())
        resolve_broker(config)
        late = [name for name, raw in config.values.items() if " #" in raw.text]
        assert late == [], "a comment after a value is a part of the value"

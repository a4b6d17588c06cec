"""docs/configuration.md equals what the declarations generate."""

from pathlib import Path

from penstock.config.document import document

_PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_committed_page_matches_the_declarations() -> None:
    assert _PAGE.read_text() == document(), (
        "run: python -m penstock.config.document > docs/configuration.md"
    )

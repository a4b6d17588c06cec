"""Every example runs as documented, and checks its own result."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.profile import is_long
from tests.zookeeper import skip_without_zookeeper

import penstock

EXAMPLES = Path(__file__).parents[2] / "examples"
DOCS = EXAMPLES.parent / "docs"


@pytest.mark.parametrize(
    "name",
    [
        "log_demo.py",
        "broker_demo.py",
        "delivery/kill_at_the_worst_moment.py",
        "delivery/retry_ladder.py",
        "producing/kill_at_the_worst_moment.py",
        "delivery/reminders.py",
        "delivery/order_and_row.py",
    ],
)
def test_demo_succeeds_and_cleans_up(name: str, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, EXAMPLES / name],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        env={"TMPDIR": str(tmp_path)},
    )
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    assert "All steps held" in result.stdout
    assert list(tmp_path.iterdir()) == []


def run_on_zookeeper(name: str, *arguments: str, home: Path) -> str:
    """What the example printed; it has succeeded and cleaned up."""
    skip_without_zookeeper()
    result = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        env={**os.environ, "TMPDIR": str(home)},
    )
    assert (result.returncode, result.stderr) == (0, ""), result.stdout + result.stderr
    assert list(home.iterdir()) == []
    return result.stdout


@pytest.mark.xdist_group("cluster")
@pytest.mark.parametrize(
    "stories",
    [
        ["views"],
        pytest.param(
            ["herd", "pause"], marks=pytest.mark.skipif(not is_long(), reason="sessions expire")
        ),
    ],
)
def test_why_groups_have_a_coordinator(stories: list[str], tmp_path: Path) -> None:
    said = run_on_zookeeper("older_consumer/why_a_coordinator.py", *stories, home=tmp_path)
    assert "All steps held" in said


@pytest.mark.xdist_group("zookeeper")
@pytest.mark.parametrize(
    "stories",
    [
        ["order", "watches", "elections"],
        pytest.param(
            ["broadcast", "sessions"],
            marks=pytest.mark.skipif(not is_long(), reason="three servers; a session expires"),
        ),
    ],
)
def test_what_zookeeper_guarantees(stories: list[str], tmp_path: Path) -> None:
    said = run_on_zookeeper("zookeeper/guarantees.py", *stories, home=tmp_path)
    assert "All steps held" in said


def table_of_the_page() -> list[str]:
    """The rows of docs/consistency.md that the program has printed."""
    page = (DOCS / "consistency.md").read_text()
    _, table = page.split("<!-- availability.py --markdown -->\n")
    return table.split("<!-- end -->")[0].splitlines()


@pytest.mark.xdist_group("cluster")
def test_cells_of_availability_are_those_of_the_page(tmp_path: Path) -> None:
    cells = [] if is_long() else ["1/1/false", "all/1/true", "all/2/false"]
    said = run_on_zookeeper("consistency/availability.py", "--markdown", *cells, home=tmp_path)
    printed = said.splitlines()
    assert len(printed) == 2 + (len(cells) or 18)
    assert printed == [line for line in table_of_the_page() if line in printed]
    if is_long():
        assert printed == table_of_the_page()


def output_on(page: str) -> str:
    """What the page says that its program prints."""
    text = (DOCS / page).read_text()
    return text.split("```\n$ python ")[1].partition("\n")[2].split("```")[0]


def test_offset_1016_is_found_as_the_page_says(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "find_offset.py")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"TMPDIR": str(tmp_path)}
    )
    assert done.stdout == output_on("lookup.md")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.xdist_group("cluster")
def test_three_messages_go_where_the_page_says(tmp_path: Path) -> None:
    said = run_on_zookeeper("consistency/three_messages.py", home=tmp_path)
    story, _, last = said.partition("\nAll steps held")
    assert story == output_on("three_messages.md")
    assert last


@pytest.mark.xdist_group("cluster")
@pytest.mark.skipif(not is_long(), reason="a cluster that is frozen, killed and started again")
def test_the_pictures_are_what_a_cluster_answers(tmp_path: Path) -> None:
    home, drawn = tmp_path / "home", tmp_path / "drawn"
    home.mkdir()
    drawn.mkdir()
    said = run_on_zookeeper("consistency/offsets.py", str(drawn), home=home)
    assert "All steps held" in said
    pictures = {path.name: path.read_text() for path in drawn.iterdir()}
    assert len(pictures) == 4
    page = DOCS / "pictures"
    assert pictures == {path.name: path.read_text() for path in page.glob("offsets-*.svg")}


def by_hand(*arguments: str) -> "subprocess.CompletedProcess[str]":
    program = EXAMPLES / "delivery" / "exactly_once.py"
    command = [sys.executable, str(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)


def test_exactly_once_without_arguments_prints_its_usage() -> None:
    done = by_hand()
    assert (done.returncode, done.stdout) == (2, "")
    assert "Run it with `python exactly_once.py BOOTSTRAP OUTPUT`" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not is_long(), reason="kill_at_the_worst_moment.py runs the same program")
def test_exactly_once_names_the_missing_topic_and_then_succeeds() -> None:
    with penstock.Broker() as broker:
        done = by_hand(broker.bootstrap_servers, "ledger")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("cannot read payments: ")
        assert "penstock topic create payments" in done.stderr
        assert "Traceback" not in done.stderr
        with penstock.Producer(broker.bootstrap_servers) as producer:
            producer.send_and_wait("payments", "payment 1")
        done = by_hand(broker.bootstrap_servers, "ledger")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

"""One vocabulary, one declaration per class, no module without its line: Kafka's words are ours.

Looks at declared names alone (classes, functions, modules, parameters, loop targets), never at
strings, keyword arguments or parts of names. A word that is wrong in one package is banned there
only. Nothing else polices style.
"""

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "penstock"
TESTS = ROOT / "tests"

# Words that say nothing of what they hold: banned for every binding, also of plain variables.
EMPTY_WORDS = frozenset(["each", "found", "known", "asked", "place", "told"])

# Words for which Kafka, ZooKeeper, Spark or Python has another; the folder where each is banned.
BANNED = {
    "": """
        Around BrokerChannel BrokerLeaves BrokerOrder ClusterView ConfigInForce Door Exchange
        Fetchers Following Given Happening Hosted InSyncProposal InSyncUpkeep Inbox LateCoordinator
        LateFetchers LeadAndFollow MorePartitions OrderTaker Outbox Outboxes Outcome PartitionOrder
        Peer Replicas Resolved RuleBook SentOrder Sharded Skimmer Standing StateLog StateShard
        Surroundings Term TopicRules TransactionParts TreeOffsets TreeRequests Turn Waiting
        alteration expel find_stranger find_term gathering growth hand_out hand_over handlers
        hear_from in_force in_sync_upkeep is_lone is_outlived knows_better lacks_replicas left_overs
        life list_moving lives obey order_taker patience room rooms stamp standing standing_nodes
        state_topics tree_offsets tree_requests untold
    """,
    "src/penstock/controller": "leaving move moves order orders term tree",
    "src/penstock/coordinators": "roll soft tree turn",
    "src/penstock/inter_broker": "leaving move moves order orders tree",
    "src/penstock/network": "exchange inbox outbox peer",
    "src/penstock/replication": "awaited counted is_open order orders rules",
    "src/penstock/server": "leaving order orders tree",
    "src/penstock/spark": "halting outbox slots",
    "src/penstock/spark/jobs": "astray decoy repeats twins",
    "tests": "desk knocking stage story twin witness workbench",
}

# Public classes that share a name on purpose: the reason beside each.
SHARED_CLASS_NAMES: dict[str, str] = {}


class Declared(NamedTuple):
    name: str
    kind: str
    line: int


def python_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def declared_names(path: Path) -> Iterator[Declared]:
    yield Declared(path.stem, "module", 1)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield Declared(node.name, "definition", node.lineno)
        elif isinstance(node, ast.arg):
            yield Declared(node.arg, "parameter", node.lineno)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            for target in ast.walk(node.target):
                if isinstance(target, ast.Name):
                    yield Declared(target.id, "loop target", target.lineno)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            bound = node.id if isinstance(node, ast.Name) else node.attr
            yield Declared(bound, "variable", node.lineno)


def banned_in(path: Path) -> frozenset[str]:
    within = path.relative_to(ROOT).as_posix()
    scopes = (words for folder, words in BANNED.items() if within.startswith(folder))
    return frozenset(word for words in scopes for word in words.split())


def offences(path: Path) -> Iterator[str]:
    banned = banned_in(path)
    if not any(is_empty(name) or name.strip("_") in banned for name in identifiers(path)):
        return  # a tenth of the time that the syntax tree takes
    for name, kind, line in declared_names(path):
        if is_empty(name) or (kind != "variable" and name.strip("_") in banned):
            yield f"{path.relative_to(ROOT)}:{line}: {kind} {name}"


def is_empty(name: str) -> bool:
    return name.strip("_").lower() in EMPTY_WORDS


def identifiers(path: Path) -> set[str]:
    """Every name that the compiled module uses, declared there or not."""
    names = {path.stem}
    codes = [compile(path.read_text(), str(path), "exec", dont_inherit=True)]
    while codes:
        code = codes.pop()
        names.update((code.co_name,), code.co_names, code.co_varnames, code.co_cellvars)
        codes.extend(const for const in code.co_consts if isinstance(const, CodeType))
    return names


@pytest.mark.parametrize("folder", ["src", "tests", "bench", "examples", "tools"])
def test_declared_names_are_kafkas_words(folder: str) -> None:
    rows = [row for path in python_files(ROOT / folder) for row in offences(path)]
    assert rows == [], f"{len(rows)} names to replace"


def test_a_public_class_name_is_declared_once() -> None:
    declared = defaultdict(list)
    for path in python_files(SOURCE):
        for name in re.findall(r"^class ([A-Z]\w*)", path.read_text(), flags=re.MULTILINE):
            declared[name].append(str(path.relative_to(SOURCE)))
    repeated = {name: paths for name, paths in declared.items() if len(paths) > 1}
    assert {name: repeated[name] for name in repeated if name not in SHARED_CLASS_NAMES} == {}
    assert set(SHARED_CLASS_NAMES) <= set(repeated), "no longer shared: take it off the list"


def test_every_module_is_named_in_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    sections = re.split(r"^#+ `([a-z_/]+)`.*$", text, flags=re.MULTILINE)
    named = {
        f"{package}/{module}"
        for package, section in zip(sections[1::2], sections[2::2], strict=True)
        for module in re.findall(r"`([a-z0-9_]+)`", section)
    }
    modules = {
        path.relative_to(SOURCE).with_suffix("").as_posix()
        for path in python_files(SOURCE)
        if path.stem != "__init__" and path.parent != SOURCE
    }
    assert modules - named == set()


def test_every_test_folder_is_named_in_contributing() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    assert {name for name in folders if f"`tests/{name}" not in text} == set()


@cache
def contracts() -> list[dict[str, object]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    rows: list[dict[str, object]] = settings["tool"]["importlinter"]["contracts"]
    return rows


def packages() -> set[str]:
    return {f"penstock.{path.name}" for path in SOURCE.iterdir() if (path / "__init__.py").exists()}


def forbidding(module: str) -> dict[str, object]:
    """The contract that keeps this module from the most sources."""
    rows = [row for row in contracts() if module in list_of(row, "forbidden_modules")]
    return max(rows, key=lambda row: len(list_of(row, "source_modules")))


def list_of(contract: dict[str, object], key: str) -> set[str]:
    value = contract.get(key, [])
    assert isinstance(value, list)
    return set(value)


def contract_of(source: str) -> dict[str, object]:
    """The contract for this package alone."""
    (row,) = (row for row in contracts() if list_of(row, "source_modules") == {source})
    return row


def modules_of(package: str) -> set[str]:
    """The modules and packages that stand in this package."""
    inside = (SOURCE / package).iterdir()
    names = {
        path.stem for path in inside if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    return {f"penstock.{package}.{name}" for name in names - {"__init__"}}


def is_package(module: str) -> bool:
    return (SOURCE.parent / module.replace(".", "/") / "__init__.py").exists()


def imported_roots(path: Path) -> set[str]:
    lines = r"^ *(?:from (\w+)[\w.]* import |import (\w+))"
    words = re.findall(lines, path.read_text(), flags=re.MULTILINE)
    return {name for pair in words for name in pair if name and find_spec(name)}


def test_the_import_contract_of_spark_forbids_all_but_four_packages() -> None:
    below = {f"penstock.{name}" for name in ("spark", "client", "protocol", "config", "model")}
    contract = forbidding("penstock.storage")
    assert list_of(contract, "source_modules") == {"penstock.spark"}
    assert packages() - below - list_of(contract, "forbidden_modules") == set()


def test_the_import_contract_of_the_extras_covers_all_but_spark_and_the_command_line() -> None:
    covered = list_of(forbidding("pyspark"), "source_modules")
    assert packages() - {"penstock.spark", "penstock.cli"} - covered == set()


def test_the_import_contract_of_zookeeper_covers_all_but_the_metadata_store() -> None:
    covered = list_of(forbidding("kazoo"), "source_modules")
    assert packages() - {"penstock.metadata_store"} - covered == set()
    beside_zookeeper = modules_of("metadata_store") - {"penstock.metadata_store.zookeeper"}
    assert beside_zookeeper - covered == set()


def test_the_import_contract_of_model_forbids_every_other_distribution() -> None:
    forbidden = list_of(contract_of("penstock.model"), "forbidden_modules")
    imported = {name for path in python_files(SOURCE) for name in imported_roots(path)}
    assert imported - sys.stdlib_module_names - {"penstock"} - forbidden == set()


def test_server_and_inter_broker_import_no_package_of_handlers() -> None:
    handlers = {name for name in modules_of("apis") if is_package(name)}
    contract = forbidding("penstock.apis.data")
    assert list_of(contract, "source_modules") == {"penstock.server", "penstock.inter_broker"}
    assert handlers - list_of(contract, "forbidden_modules") == set()


def test_every_layered_contract_is_exhaustive() -> None:
    layered = [row for row in contracts() if row["type"] == "layers"]
    assert {str(row["containers"]) for row in layered} >= {"['penstock']", "['penstock.spark']"}
    assert all(row.get("exhaustive") for row in layered)

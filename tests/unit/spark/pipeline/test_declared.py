"""The specification for Spark's pipeline runner, and the settings of its server."""

import json
from pathlib import Path

import pytest

from penstock.spark.pipeline.declared import (
    DeclaredPipeline,
    check_declared,
    is_specification,
    server_settings,
    specification,
)
from penstock.spark.pipeline.problems import PipelineInvalid


def test_specification_refers_to_the_file_from_the_checkpoints(tmp_path: Path) -> None:
    file = tmp_path / "code" / "clicks.py"
    written = json.loads(
        json.dumps(specification(DeclaredPipeline(file, tmp_path / "c" / "clicks", "h:1")))
    )
    (library,) = written.pop("libraries")
    assert written == {"name": "clicks", "storage": f"file://{tmp_path}/c/clicks/storage"}
    assert (tmp_path / "c" / "clicks" / library["glob"]["include"]).resolve() == file


def test_own_server_is_local_and_needs_a_token(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    settings = server_settings(DeclaredPipeline(Path("p.py"), tmp_path, "h:1"), environment)
    assert settings["spark.connect.grpc.binding.address"] == "127.0.0.1"
    assert settings["spark.connect.grpc.binding.port"] == "0"
    assert len(environment["SPARK_CONNECT_AUTHENTICATE_TOKEN"]) >= 32


def test_specifications_of_sparks_runner_are_told_from_pipelines(tmp_path: Path) -> None:
    spec = "name: shop\nstorage: file:///tmp/x\nlibraries: [{glob: {include: steps/**}}]\n"
    assert is_specification(spec)
    assert not is_specification("sinks: {out: {}}\n")
    assert not is_specification("- [")
    file = tmp_path / "spark-pipeline.yml"
    file.write_text(spec)
    check_declared(file)
    file.write_text("name: shop\nlibraries: []\n")
    with pytest.raises(PipelineInvalid, match="1: Spark's runner needs `storage:` in a spec"):
        check_declared(file)

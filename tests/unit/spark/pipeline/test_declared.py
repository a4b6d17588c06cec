"""What is told to Spark's runner of declarative pipelines, and to the server that it talks to."""

import json
from pathlib import Path

from penstock.spark.pipeline.declared import DeclaredPipeline, server_settings, specification


def test_the_specification_leads_from_the_checkpoints_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "code" / "clicks.py"
    told = json.loads(
        json.dumps(specification(DeclaredPipeline(file, tmp_path / "c" / "clicks", "h:1")))
    )
    (library,) = told.pop("libraries")
    assert told == {"name": "clicks", "storage": f"file://{tmp_path}/c/clicks/storage"}
    assert (tmp_path / "c" / "clicks" / library["glob"]["include"]).resolve() == file


def test_a_server_of_its_own_is_for_this_machine_and_has_a_password(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    settings = server_settings(DeclaredPipeline(Path("p.py"), tmp_path, "h:1"), environment)
    assert settings["spark.connect.grpc.binding.address"] == "127.0.0.1"
    assert settings["spark.connect.grpc.binding.port"] == "0"
    assert len(environment["SPARK_CONNECT_AUTHENTICATE_TOKEN"]) >= 32

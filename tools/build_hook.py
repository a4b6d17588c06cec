"""Hatchling's hook: adds the modules that pyproject.toml lists to the wheel as compiled extensions.

Where they cannot be compiled the wheel is a plain one, and the build says so. PENSTOCK_COMPILE=0
builds a plain wheel on purpose; 1 makes a failure fatal. Editable installs are always plain: an
extension beside a source would hide every edit.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.builders.wheel import WheelBuilderConfig

sys.path.insert(0, str(Path(__file__).parents[1]))  # hatchling loads this file alone
from tools.compile_modules import CompileFailed, compile_modules

SWITCH = "PENSTOCK_COMPILE"


class CompiledModules(BuildHookInterface[WheelBuilderConfig]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._work: str | None = None
        wish = os.environ.get(SWITCH, "")
        if version == "editable" or wish == "0":
            return
        self._work = tempfile.mkdtemp(prefix="penstock-compiled-")
        directory = Path(self._work) / "src"
        try:
            extensions = compile_modules(directory, self.config["modules"])
        except (CompileFailed, OSError) as error:
            if wish == "1":
                raise
            self.app.display_warning(
                f"{error}\nbuilding a plain wheel: its brokers take twice the processor time for "
                "a small request, and say at start what checking records costs; install a C "
                f"compiler and build again ({SWITCH}=1 makes this an error)"
            )
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for extension in extensions:
            build_data["force_include"][str(extension)] = str(extension.relative_to(directory))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._work is not None:
            shutil.rmtree(self._work, ignore_errors=True)

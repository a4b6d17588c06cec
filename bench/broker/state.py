"""Samples, written to a file after every measurement, so that a run can be resumed."""

from __future__ import annotations

import json
from pathlib import Path

Sample = dict[str, float]
Samples = dict[str, list[Sample]]  # by broker


class State:
    """Samples by key and broker; owned by the run that writes them."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        self._path = path
        self._samples: dict[str, Samples] = {}
        if resume and path.exists():
            self._samples = json.loads(path.read_text())

    def count(self, key: str, broker: str) -> int:
        return len(self._samples.get(key, {}).get(broker, ()))

    def add(self, key: str, broker: str, sample: Sample) -> None:
        self._samples.setdefault(key, {}).setdefault(broker, []).append(sample)
        whole = self._path.with_suffix(".new")
        whole.write_text(json.dumps(self._samples, indent=1))
        whole.replace(self._path)

    def samples(self, key: str) -> Samples:
        return self._samples.get(key, {})

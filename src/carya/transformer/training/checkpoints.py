"""Checkpoints: the complete state of a training run in one safetensors file, which is replaced atomically."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from carya.core.atomic import atomic_file
from carya.errors import ModelFormatError, SaveError

_FILE = "training.safetensors"


@dataclass(frozen=True)
class Checkpoints:
    """Folder with the latest checkpoint of one training run.

    Attributes
    ----------
    folder : Path
    run : dict
        The data and parameters that identify the run. Checkpoints from other runs are rejected.
    """

    folder: Path
    run: Mapping[str, Any]

    @property
    def _path(self) -> Path:
        return self.folder / _FILE

    def write(self, tensors: Mapping[str, torch.Tensor], progress: Mapping[str, Any]) -> None:
        """Write a checkpoint, replacing the previous one."""
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        metadata = {"run": json.dumps(self.run, sort_keys=True), "progress": json.dumps(progress)}
        content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        try:
            with atomic_file(self._path) as stream:
                save_file(content, stream.name, metadata)
        except (OSError, SafetensorError) as error:
            raise SaveError(
                f"The checkpoint cannot be written to {self.folder}: {getattr(error, 'strerror', None) or error}"
            ) from error

    def read(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
        """Return the tensors and the progress stored in the checkpoint, or None if there is no checkpoint.

        Raises
        ------
        ModelFormatError
            If the checkpoint is damaged or belongs to a different run.
        """
        from safetensors import SafetensorError, safe_open

        if not self._path.exists():
            return None
        try:
            with safe_open(self._path, "pt") as file:
                metadata = file.metadata() or {}
                run, progress = json.loads(metadata["run"]), json.loads(metadata["progress"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            raise ModelFormatError(f"{self._path} is damaged: {error}. Remove it to restart training.") from None
        current = json.loads(json.dumps(self.run))
        if run != current:
            different = sorted(name for name in {*run, *current} if run.get(name) != current.get(name))
            raise ModelFormatError(
                f"{self._path} belongs to a training run that differs in {', '.join(different)}. Remove it or use a "
                "different folder."
            )
        return tensors, progress

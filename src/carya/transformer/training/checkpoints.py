"""Training that survives a kill: all of its state in one file of safetensors, exchanged in one step."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from carya.errors import ModelFormatError, SaveError

_FILE = "training.safetensors"


@dataclass(frozen=True)
class Checkpoints:
    """A folder for the state of one training.

    Attributes
    ----------
    folder : Path
    about : dict
        What the training is: data, parameters. A state of another training is refused.
    """

    folder: Path
    about: Mapping[str, Any]

    def write(self, tensors: Mapping[str, torch.Tensor], progress: Mapping[str, Any]) -> None:
        """Replace the state."""
        from safetensors.torch import save_file

        notes = {"about": json.dumps(self.about, sort_keys=True), "progress": json.dumps(progress)}
        beside = self.folder / f".{_FILE}.{secrets.token_hex(8)}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            save_file({name: one.detach().cpu().contiguous() for name, one in tensors.items()}, beside, notes)
            beside.replace(self.folder / _FILE)
        except OSError as error:
            raise SaveError(f"{self.folder}: {error.strerror or error}") from error
        finally:
            beside.unlink(missing_ok=True)

    def read(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
        """The last state, or None if there is none; ModelFormatError if it is damaged or another training's."""
        from safetensors import SafetensorError, safe_open

        path = self.folder / _FILE
        if not path.exists():
            return None
        try:
            with safe_open(path, "pt") as file:
                notes = file.metadata() or {}
                about, progress = json.loads(notes["about"]), json.loads(notes["progress"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            raise ModelFormatError(f"{path} is damaged: {error}; remove it to begin anew") from None
        if about != json.loads(json.dumps(self.about)):
            other = sorted(key for key in {*about, *self.about} if about.get(key) != self.about.get(key))
            raise ModelFormatError(
                f"{path} belongs to another training ({', '.join(map(str, other))} differ): "
                "remove it, or give another folder"
            )
        return tensors, progress

    def clear(self) -> None:
        """Remove the state: training is done."""
        (self.folder / _FILE).unlink(missing_ok=True)

"""Import libpecos models: folders with ``ranker/<d>.model/{W,C}.npz`` and ``param.json``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr
from carya.errors import ModelFormatError
from carya.models.xr_linear.model import XRLinear
from carya.trees.label_tree import LabelTree
from carya.trees.layer import Layer, Weights
from carya.trees.trained_tree import TrainedTree
from carya.trees.transforms import Transform


def import_pecos(path: str | os.PathLike[str]) -> XRLinear:
    """Import an XR-Linear model saved by libpecos; the imported model returns the same rankings.

    Raises
    ------
    ModelFormatError
        If the folder is not a libpecos XR-Linear model.
    """
    folder = Path(path)
    ranker = folder / "ranker"
    if not ranker.is_dir():
        raise ModelFormatError(f"{folder} is not a libpecos XR-Linear model: the folder ranker/ is missing.")
    depth = _positive_int(_read_json(ranker / "param.json"), "depth", ranker / "param.json")
    settings, weights, chain = [], [], []
    for level in range(depth):
        layer = ranker / f"{level}.model"
        settings.append(_read_json(layer / "param.json"))
        weights.append(_read_matrix(layer / "W.npz"))
        chain.append(_read_matrix(layer / "C.npz"))
    try:
        tree = LabelTree.from_chain(chain)
        layers = [
            _layer(tree, level, setting, matrix)
            for level, (setting, matrix) in enumerate(zip(settings, weights, strict=True), 1)
        ]
        inner = settings[0]["pred_kwargs"]["only_topk"] if depth > 1 else 10
        return XRLinear.from_trained_tree(
            TrainedTree(tree, layers, (layers[0].weights.n_features, 0)),
            beam_width=int(inner),
            transform=[layer.transform.name for layer in layers],
            weight_dtype="float32",
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelFormatError(f"{folder} is not a libpecos XR-Linear model: {error}") from None


def _layer(tree: LabelTree, level: int, setting: dict[str, Any], matrix: sp.csr_array) -> Layer:
    order, chunks = tree.children(level)
    bias = float(setting["bias"])
    features = int(setting["nr_features"])
    if matrix.shape != (features + (bias > 0), order.size):
        raise ValueError(
            f"Layer {level} must have weights of shape {(features + (bias > 0), order.size)}, got {matrix.shape}."
        )
    by_position = sp.csr_array(sp.csc_array(matrix)[:, order])
    by_position.sort_indices()
    biases = np.zeros(order.size, np.float32)
    if bias > 0:
        biases[:] = by_position[[features]].toarray()[0] * bias
    return Layer(
        weights=Weights.pack(Csr.of_scipy(by_position[:features], f"The matrix of layer {level}"), chunks, "float32"),
        dense=np.zeros((order.size, 0), np.float32),
        biases=biases,
        chunks=chunks,
        order=order,
        transform=Transform.from_name(setting["pred_kwargs"]["post_processor"]),
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFormatError(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise ModelFormatError(f"{path} does not contain a JSON object.")
    return content


def _positive_int(content: dict[str, Any], key: str, path: Path) -> int:
    value = content.get(key)
    if not isinstance(value, int) or value < 1:
        raise ModelFormatError(f"{path} has no valid value for {key!r}.")
    return value


def _read_matrix(path: Path) -> sp.csr_array:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            kind = arrays["format"].item().decode()
            container = {"csc": sp.csc_array, "csr": sp.csr_array}[kind]
            matrix = container((arrays["data"], arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"]))
        matrix.check_format(full_check=True)
        return sp.csr_array(matrix)
    except Exception as error:  # NumPy, zipfile and SciPy raise many types of exceptions for damaged files
        raise ModelFormatError(f"{path} cannot be read: {error}") from None

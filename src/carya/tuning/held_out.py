"""The data of a tuning run: training and validation rows, stored in files that all workers memory-map."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr, Features
from carya.core.strings import StringArray
from carya.errors import InputError

_RUN = 20  # number of consecutive rows that are held out together; rows from the same source are often adjacent
_MAX_VALIDATION_ROWS = 6_000
_MIN_VALIDATION_ROWS = 2_000
_MIN_ROWS = 40


def split_rows(n_rows: int, fraction: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of the training rows in random order, and of the validation rows in ascending order.

    Blocks of up to 20 consecutive rows stay together, to keep near-duplicates of validation rows out of the training
    rows. The first n training rows are a random sample of such blocks.

    >>> train, validation = split_rows(200, 0.2, seed=0)
    >>> train.size, validation.size
    (160, 40)
    """
    if n_rows < _MIN_ROWS:
        raise InputError(f"Tuning requires at least {_MIN_ROWS} rows, got {n_rows}. Pass more data.")
    length = max(1, min(_RUN, n_rows // _MIN_ROWS))
    runs = np.random.default_rng(seed).permutation(-(-n_rows // length))
    n_held_out = max(1, round(min(fraction * n_rows, _MAX_VALIDATION_ROWS) / length))

    def rows_of(chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        rows = (chosen[:, None] * length + np.arange(length)).ravel()
        return rows[rows < n_rows]

    return rows_of(runs[n_held_out:]), np.sort(rows_of(runs[:n_held_out]))


@dataclass(frozen=True, eq=False)
class HeldOutData:
    """Labeled rows, split into training and validation rows.

    Attributes
    ----------
    folder : Path
        The folder that contains the arrays.
    texts : StringArray or None
        The texts, if the rows are texts.
    features : Features or None
        The features, if the rows are not texts.
    labels : Csr of shape (rows, labels)
    label_texts : StringArray or None
        One name or description per label, for models that compare them with the texts.
    train, validation : ndarray of int64
        Row indices; see :func:`split_rows`.
    """

    folder: Path
    texts: StringArray | None
    features: Features | None
    labels: Csr
    label_texts: StringArray | None
    train: NDArray[np.int64]
    validation: NDArray[np.int64]

    @classmethod
    def store(
        cls,
        folder: Path,
        *,
        texts: Sequence[str] | None = None,
        features: Features | None = None,
        labels: Csr,
        label_texts: Sequence[str] | None = None,
        validation_fraction: float,
        seed: int,
    ) -> Self:
        """Write the data to a folder, and open it."""
        train, validation = split_rows(labels.rows, validation_fraction, seed)
        arrays: dict[str, Any] = {"train": train, "validation": validation}
        arrays |= {f"labels.{name}": getattr(labels, name) for name in ("indptr", "indices", "values")}
        for name, strings in (("texts", texts), ("label_texts", label_texts)):
            if strings is not None:
                array = StringArray.of(strings)
                arrays |= {f"{name}.bytes": array.data, f"{name}.ends": array.ends}
        sizes = {"labels": labels.cols, "features": 0}
        if features is not None:
            sparse = features.sparse
            arrays |= {f"features.{name}": getattr(sparse, name) for name in ("indptr", "indices", "values")}
            sizes["features"] = sparse.cols
            if features.dense is not None:
                arrays["dense"] = features.dense
        write_arrays(folder, arrays, sizes)
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open a folder written by :meth:`store`; arrays are memory-mapped."""
        arrays, sizes = read_arrays(folder)
        features = None
        if "features.indptr" in arrays:
            sparse = Csr.of(*triple(arrays, "features"), sizes["features"])
            features = Features.of(sparse, arrays.get("dense"))
        return cls(
            folder,
            _strings(arrays, "texts"),
            features,
            Csr.of(*triple(arrays, "labels"), sizes["labels"]),
            _strings(arrays, "label_texts"),
            arrays["train"],
            arrays["validation"],
        )

    def training_rows(self, n_rows: int) -> NDArray[np.int64]:
        """Return the indices of a sample of `n_rows` training rows, in ascending order."""
        return np.sort(self.train[:n_rows])

    def texts_of(self, rows: NDArray[np.int64]) -> list[str]:
        """Return the texts of the given rows."""
        assert self.texts is not None
        return [self.texts[row] for row in rows.tolist()]

    def validation_rows(self, n_rows: int) -> NDArray[np.int64]:
        """Return the indices of the validation rows for models that are trained on `n_rows` rows.

        Models that are trained on few rows are also evaluated on fewer rows, because prediction would otherwise
        dominate the time of the trial.
        """
        count = min(self.validation.size, max(_MIN_VALIDATION_ROWS, n_rows // 2))
        chosen: NDArray[np.int64] = self.validation[np.arange(count) * self.validation.size // count]
        return chosen

    def validation_labels(self, n_rows: int) -> sp.csr_array:
        """Return the label matrix of the validation rows for models that are trained on `n_rows` rows."""
        return self.labels.take(self.validation_rows(n_rows)).with_values(1).to_scipy()


def write_arrays(folder: Path, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> None:
    """Write arrays and JSON-serializable values to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", np.ascontiguousarray(array), allow_pickle=False)
    (folder / "values.json").write_text(json.dumps(values), encoding="utf-8")


def read_arrays(folder: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the memory-mapped arrays and the values written by :func:`write_arrays`."""
    values: dict[str, Any] = json.loads((folder / "values.json").read_text(encoding="utf-8"))
    arrays = {
        path.stem: np.load(path, mmap_mode="r" if path.stat().st_size > 1 << 16 else None, allow_pickle=False)
        for path in sorted(folder.glob("*.npy"))
    }
    return arrays, values


def triple(arrays: Mapping[str, NDArray[Any]], name: str) -> tuple[Any, Any, Any]:
    """Return the three arrays of a CSR matrix."""
    indptr, indices, values = (np.asarray(arrays[f"{name}.{part}"]) for part in ("indptr", "indices", "values"))
    return indptr, indices, values


def _strings(arrays: Mapping[str, NDArray[Any]], name: str) -> StringArray | None:
    if f"{name}.ends" not in arrays:
        return None
    return StringArray(np.asarray(arrays[f"{name}.bytes"]), np.asarray(arrays[f"{name}.ends"]))

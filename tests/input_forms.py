"""The input types for texts, labels and features, used by test_inputs.py and tools/compatibility-page.

Each `Form` converts plain data (a list of texts, a list of lists of strings, or a sparse matrix, for example) to one
input type. Forms that require an optional package are skipped if the package is missing.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from carya.data import Corpus, Matrices


@dataclass(frozen=True)
class Form:
    """An input type.

    Attributes
    ----------
    name : str
    convert : callable
        Converts plain data to this type.
    package : str, optional
        The optional package that provides the type.
    """

    name: str
    convert: Callable[[Any], Any]
    package: str | None = None

    @property
    def is_available(self) -> bool:
        """Whether the required package is installed."""
        return self.package is None or importlib.util.find_spec(self.package) is not None


def _pandas() -> Any:
    import pandas

    return pandas


def pandas_frame(columns: dict[str, Any]) -> Any:
    """Return a pandas DataFrame."""
    return _pandas().DataFrame(columns)


def _polars() -> Any:
    import polars

    return polars


def _pyarrow() -> Any:
    import pyarrow

    return pyarrow


def dataset(columns: dict[str, Any]) -> Any:
    """Return a ``datasets.Dataset``."""
    import datasets

    return datasets.Dataset.from_dict(columns)


def _dataset_column(values: list[Any]) -> Any:
    return dataset({"column": values})["column"]


def _tensor(values: Any) -> Any:
    import torch

    return torch.as_tensor(values)


def _object_array(values: list[Any]) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array


TEXTS = [
    Form("list", list),
    Form("tuple", tuple),
    Form("iterator", iter),
    Form("NumPy string array", np.array),
    Form("NumPy object array", _object_array),
    Form("pandas Series", lambda texts: _pandas().Series(texts, index=range(5, 5 + len(texts))), "pandas"),
    Form("pandas DataFrame column", lambda texts: _pandas().DataFrame({"text": texts})["text"], "pandas"),
    Form("polars Series", lambda texts: _polars().Series("text", texts), "polars"),
    Form("pyarrow Array", lambda texts: _pyarrow().array(texts), "pyarrow"),
    Form("pyarrow ChunkedArray", lambda texts: _pyarrow().chunked_array([texts[:3], texts[3:]]), "pyarrow"),
    Form("datasets column", _dataset_column, "datasets"),
    Form("pandas DataFrame", lambda texts: pandas_frame({"text": texts}), "pandas"),
    Form("polars DataFrame", lambda texts: _polars().DataFrame({"text": texts}), "polars"),
    Form("polars LazyFrame", lambda texts: _polars().LazyFrame({"text": texts}), "polars"),
    Form("pyarrow Table", lambda texts: _pyarrow().table({"text": texts}), "pyarrow"),
    Form("datasets Dataset", lambda texts: dataset({"text": texts}), "datasets"),
    Form("Corpus", lambda texts: Corpus.of((text, ()) for text in texts)),
]

#: Several labels per row.
LABEL_LISTS = [
    Form("list of lists", lambda labels: [list(row) for row in labels]),
    Form("list of sets", lambda labels: [set(row) for row in labels]),
    Form("iterator of tuples", lambda labels: (tuple(row) for row in labels)),
    Form("NumPy object array of lists", _object_array),
    Form("pandas Series of lists", lambda labels: _pandas().Series([list(row) for row in labels]), "pandas"),
    Form("polars Series of lists", lambda labels: _polars().Series([list(row) for row in labels]), "polars"),
    Form("pyarrow Array of lists", lambda labels: _pyarrow().array([list(row) for row in labels]), "pyarrow"),
    Form("datasets column of lists", lambda labels: _dataset_column([list(row) for row in labels]), "datasets"),
]

#: One label per row.
SINGLE_LABELS = [
    Form("list of strings", list),
    Form("NumPy string array", np.array),
    Form("pandas Series of strings", lambda labels: _pandas().Series(labels), "pandas"),
    Form("pandas categorical Series", lambda labels: _pandas().Series(labels, dtype="category"), "pandas"),
    Form("polars Series of strings", lambda labels: _polars().Series(labels), "polars"),
    Form("pyarrow Array of strings", lambda labels: _pyarrow().array(labels), "pyarrow"),
    Form("datasets column of strings", _dataset_column, "datasets"),
]

#: One class index per row.
CLASS_NUMBERS = [
    Form("list of integers", list),
    Form("list of NumPy integers", lambda numbers: [np.int32(number) for number in numbers]),
    Form("list of sets of integers", lambda numbers: [{number} for number in numbers]),
    Form("NumPy integer array", lambda numbers: np.array(numbers, np.uint16)),
    Form("pandas Series of integers", lambda numbers: _pandas().Series(numbers), "pandas"),
    Form("polars Series of integers", lambda numbers: _polars().Series(numbers), "polars"),
    Form("pyarrow Array of integers", lambda numbers: _pyarrow().array(numbers), "pyarrow"),
    Form("datasets column of integers", _dataset_column, "datasets"),
    Form("torch tensor of integers", _tensor, "torch"),
]

#: A binary label indicator matrix.
INDICATORS = [
    Form("sparse array", lambda Y: Y),
    Form("sparse matrix, CSC", sp.csc_matrix),
    Form("NumPy array of int64", lambda Y: Y.toarray().astype(np.int64)),
    Form("NumPy array of bool", lambda Y: Y.toarray() > 0),
    Form("pandas DataFrame", lambda Y: _pandas().DataFrame(Y.toarray()), "pandas"),
    Form("polars DataFrame", lambda Y: _polars().DataFrame(Y.toarray(), schema=_columns(Y)), "polars"),
    Form("torch tensor", lambda Y: _tensor(Y.toarray()), "torch"),
]


def _columns(Y: Any) -> list[str]:
    return [str(number) for number in range(Y.shape[1])]


def _sparse_frame(X: Any) -> Any:
    return _pandas().DataFrame.sparse.from_spmatrix(sp.csr_matrix(X))


def _dia(X: Any) -> Any:
    with warnings.catch_warnings(action="ignore"):  # SciPy warns that DIA is inefficient for this data
        return sp.dia_array(X)


FEATURES = [
    Form("sparse array, CSR", sp.csr_array),
    Form("sparse matrix, CSR", sp.csr_matrix),
    Form("sparse array, CSC", sp.csc_array),
    Form("sparse array, COO", sp.coo_array),
    Form("sparse array, LIL", sp.lil_array),
    Form("sparse array, DOK", sp.dok_array),
    Form("sparse array, DIA", _dia),
    Form("sparse array, BSR", sp.bsr_array),
    Form("pandas sparse DataFrame", _sparse_frame, "pandas"),
    Form("torch sparse tensor", lambda X: _tensor(X.toarray()).to_sparse(), "torch"),
    Form("NumPy array of float64", lambda X: X.toarray().astype(np.float64)),
    Form("NumPy array of float32", lambda X: X.toarray()),
    Form("nested lists", lambda X: X.toarray().tolist()),
    Form("pandas DataFrame", lambda X: _pandas().DataFrame(X.toarray()), "pandas"),
    Form("polars DataFrame", lambda X: _polars().DataFrame(X.toarray()), "polars"),
    Form("pyarrow Table", lambda X: _pyarrow().table(dict(zip(_columns(X), X.toarray().T, strict=True))), "pyarrow"),
    Form("pandas Series of vectors", lambda X: _pandas().Series(list(X.toarray())), "pandas"),
    Form("datasets column of vectors", lambda X: _dataset_column(X.toarray().tolist()), "datasets"),
    Form("torch tensor", lambda X: _tensor(X.toarray()), "torch"),
    Form("Matrices", lambda X: Matrices(X, sp.csr_array((X.shape[0], 1)))),
]


#: Forms whose conversion fails if a row of the plain data is not a list.
NESTED_BY_CONVERSION = {
    "list of lists",
    "list of sets",
    "iterator of tuples",
    "pandas Series of lists",
    "polars Series of lists",
    "pyarrow Array of lists",
    "datasets column of lists",
}


def params(forms: list[Form]) -> list[Any]:
    """Return pytest parameters; forms with a missing package are skipped, and those that require PyTorch are marked."""
    parameters = []
    for form in forms:
        marks = [pytest.mark.transformer] if form.package == "torch" else []
        if not form.is_available:
            marks.append(pytest.mark.skip(reason=f"requires {form.package}"))
        parameters.append(pytest.param(form, id=form.name, marks=marks))
    return parameters

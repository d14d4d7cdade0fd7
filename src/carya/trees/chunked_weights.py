"""Convert unpacked weights to matrices and back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core import lazy_sparse as sp


def to_chunked(weights: sp.csc_array, chunks: NDArray[np.int64]) -> _core.ChunkedWeights:
    """Return a weight matrix of shape (sparse features, positions) as the weights of consecutive chunks."""
    n_features, n_chunks = weights.shape[0], chunks.size - 1
    parts: dict[str, list[NDArray[np.uint8]]] = {"counts": [], "children": [], "values": []}
    features = [np.zeros(0, np.int32)]
    run_counts, weight_counts = np.zeros(n_chunks, np.int64), np.zeros(n_chunks, np.int64)
    for chunk in np.flatnonzero(np.diff(weights.indptr[chunks])).tolist():
        begin, end = int(chunks[chunk]), int(chunks[chunk + 1])
        columns = sp.csr_array(weights[:, begin:end])
        columns.sort_indices()
        counts = np.diff(columns.indptr)
        used = np.flatnonzero(counts)
        index_dtype = _index_dtype(end - begin)
        run_counts[chunk], weight_counts[chunk] = used.size, columns.nnz
        features.append(used.astype(np.int32))
        parts["counts"].append((counts[used] - 1).astype(index_dtype).view(np.uint8))
        parts["children"].append(columns.indices.astype(index_dtype).view(np.uint8))
        parts["values"].append(columns.data.astype(np.float32).view(np.uint8))
    joined = {name: np.concatenate([np.zeros(0, np.uint8), *arrays]) for name, arrays in parts.items()}
    return _core.ChunkedWeights(
        chunks,
        n_features,
        _core.WeightDtype.float32,
        run_counts,
        weight_counts,
        np.concatenate(features),
        **joined,
        scales=np.ones(n_chunks, np.float32),
    )


def of_chunked(weights: _core.ChunkedWeights, chunks: NDArray[np.int64], n_features: int) -> sp.csc_array:
    """Return float32 weights of consecutive chunks as a matrix of shape (sparse features, positions)."""
    arrays = weights.arrays()
    values = arrays["values"].view(np.float32)
    rows, columns = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    run = count_byte = child_byte = 0
    for chunk in np.flatnonzero(arrays["weight_counts"]).tolist():
        runs, entries = int(arrays["run_counts"][chunk]), int(arrays["weight_counts"][chunk])
        index_dtype = np.dtype(_index_dtype(int(chunks[chunk + 1] - chunks[chunk])))
        count_end, child_end = count_byte + runs * index_dtype.itemsize, child_byte + entries * index_dtype.itemsize
        counts = arrays["counts"][count_byte:count_end].view(index_dtype).astype(np.int64) + 1
        rows.append(np.repeat(arrays["features"][run : run + runs], counts))
        columns.append(arrays["children"][child_byte:child_end].view(index_dtype).astype(np.int64) + chunks[chunk])
        run, count_byte, child_byte = run + runs, count_end, child_end
    shape = (n_features, int(chunks[-1]))
    return sp.csc_array(sp.coo_array((values, (np.concatenate(rows), np.concatenate(columns))), shape=shape))


def _index_dtype(chunk_size: int) -> type[np.unsignedinteger]:
    """Return the data type of child indices in a chunk of this size."""
    return np.uint8 if chunk_size <= 0x100 else np.uint16 if chunk_size <= 0x10000 else np.uint32

"""Requests to the parts of a split model, their responses, and the encoding of both as bytes.

A message is encoded as the size of its header (8 bytes, little-endian), the header (JSON), and the bytes of its arrays.
The header lists the name, data type and shape of each array. Scores are transmitted as float32, that is, without loss.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from carya.core.matrices import Csr, Features
from carya.errors import InputError
from carya.trees.beam_search import Rankings

_SIZE_BYTES = 8
_MAX_HEADER = 1 << 16
_DTYPES = {"int32": "<i4", "int64": "<i8", "float32": "<f4"}


@dataclass(frozen=True, eq=False)
class PartRequest:
    """Queries for one part of a split model.

    Attributes
    ----------
    split : str
        The id of the split; parts of other splits reject the request.
    part : int
        The number of the part.
    queries : Features
    starts : Csr of shape (queries, clusters of the part)
        The path scores of the clusters in the beam.
    top_k : int
        The number of labels per query; ignored if `candidates` is given.
    candidates : Csr of shape (queries, labels of the part), optional
        The labels to score; if given, the part scores only these labels instead of ranking all labels in the clusters.
    """

    split: str
    part: int
    queries: Features
    starts: Csr
    top_k: int = 1
    candidates: Csr | None = None

    def encode(self) -> bytes:
        """Return the request as bytes."""
        sparse = self.queries.sparse
        arrays: dict[str, NDArray[Any]] = {
            "indptr": sparse.indptr,
            "features": sparse.indices,
            "values": sparse.values,
            "dense": self.queries.dense,
            "starts.indptr": self.starts.indptr,
            "starts.clusters": self.starts.indices,
            "starts.scores": self.starts.values,
        }
        if self.candidates is not None:
            arrays |= {"candidates.indptr": self.candidates.indptr, "candidates.labels": self.candidates.indices}
        return _encode({"split": self.split, "part": self.part, "top_k": self.top_k}, arrays)

    @classmethod
    def decode(cls, message: bytes, widths: tuple[int, int], n_clusters: int, n_labels: int) -> Self:
        """Restore a request to a part with the given numbers of features, clusters and labels.

        Raises InputError if the message is invalid.
        """
        header, arrays = _decode(message)
        split, part, top_k = (header.get(key) for key in ("split", "part", "top_k"))
        if not isinstance(split, str) or type(part) is not int or type(top_k) is not int or top_k < 1:
            raise InputError("The header must contain split, part and top_k.")
        try:
            sparse = Csr.of(arrays["indptr"], arrays["features"], arrays["values"], widths[0], "queries")
            queries = Features.of(sparse, arrays["dense"], "queries")
            starts = Csr.of(
                arrays["starts.indptr"], arrays["starts.clusters"], arrays["starts.scores"], n_clusters, "starts"
            )
            candidates = None
            if "candidates.indptr" in arrays:
                labels = arrays["candidates.labels"]
                ones = np.ones(labels.size, np.float32)
                candidates = Csr.of(arrays["candidates.indptr"], labels, ones, n_labels, "candidates")
        except KeyError as error:
            raise InputError(f"The array {error} is missing.") from None
        except TypeError:
            raise InputError("An array has the wrong data type or shape.") from None
        rows = {queries.rows, starts.rows, queries.rows if candidates is None else candidates.rows}
        if queries.widths != widths or len(rows) > 1:
            raise InputError(
                f"The queries must have {widths[0]} sparse and {widths[1]} dense features, and all matrices must have "
                "the same number of rows."
            )
        return cls(split, part, queries, starts, top_k, candidates)


@dataclass(frozen=True, eq=False)
class PartResponse:
    """Rankings of labels with their path scores, or only the path scores of the requested candidates.

    Attributes
    ----------
    indptr : ndarray of int64
        The row offsets of the rankings; empty if candidates were scored.
    labels : ndarray of int32
        The label indices in the unsplit model, best first; empty if candidates were scored.
    scores : ndarray of float32
    """

    indptr: NDArray[np.int64]
    labels: NDArray[np.int32]
    scores: NDArray[np.float32]

    @property
    def rankings(self) -> Rankings:
        """The row offsets, labels and path scores."""
        return self.indptr, self.labels, self.scores

    def encode(self) -> bytes:
        """Return the response as bytes."""
        return _encode({}, {"indptr": self.indptr, "labels": self.labels, "scores": self.scores})

    @classmethod
    def decode(cls, message: bytes) -> Self:
        """Restore a response; raise InputError if it is invalid."""
        _, arrays = _decode(message)
        expected = {"indptr": np.int64, "labels": np.int32, "scores": np.float32}
        if {name: array.dtype for name, array in arrays.items()} != expected or any(
            array.ndim != 1 for array in arrays.values()
        ):
            raise InputError("The response does not contain labels and scores.")
        return cls(**arrays)


def _encode(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    described = [[name, str(array.dtype), list(array.shape)] for name, array in arrays.items()]
    text = json.dumps({**header, "arrays": described}).encode()
    content = [np.ascontiguousarray(array, _DTYPES[str(array.dtype)]).tobytes() for array in arrays.values()]
    return b"".join([len(text).to_bytes(_SIZE_BYTES, "little"), text, *content])


def _decode(message: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the header and the arrays of a message; raise InputError if the message is invalid."""
    size = int.from_bytes(message[:_SIZE_BYTES], "little")
    if not 0 < size <= min(_MAX_HEADER, len(message) - _SIZE_BYTES):
        raise InputError("The message has no valid header.")
    arrays = {}
    offset = _SIZE_BYTES + size
    try:
        header = json.loads(message[_SIZE_BYTES:offset])
        for name, dtype, shape in header["arrays"]:
            if not all(type(length) is int and length >= 0 for length in shape) or not isinstance(name, str):
                raise ValueError(f"an array has an invalid name or shape ({shape!r})")
            count = math.prod(shape)
            array = np.frombuffer(message, _DTYPES[dtype], count, offset)  # raises ValueError if bytes are missing
            arrays[name] = array.astype(dtype).reshape(shape)  # copies the array, whose offset can be unaligned
            offset += array.nbytes
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise InputError(f"The message is invalid: {error}.") from None
    if offset != len(message):
        raise InputError(f"The message is invalid: it has {len(message)} bytes instead of {offset}.")
    return header, arrays

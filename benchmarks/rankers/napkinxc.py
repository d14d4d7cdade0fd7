"""napkinXC 0.7.2: a probabilistic label tree with default settings and the same beam width as the other systems."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from napkinxc.models import PLT

import measure


def train(X: Any, Y: Any, folder: str, threads: int) -> None:
    labels = [Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist() for row in range(Y.shape[0])]
    PLT(str(folder), threads=threads, verbose=False).fit(X, labels)


def load(folder: str, threads: int) -> Any:
    beam = {"tree_search_type": "beam", "beam_search_width": measure.BEAM_WIDTH}
    model = PLT(str(folder), threads=threads, verbose=False, **beam)
    model.load()
    return model


def prepare(X: Any, row: int) -> Any:
    return X[row]


def one(model: Any, query: Any, top_k: int = measure.TOP_K, beam: int = measure.BEAM_WIDTH) -> Any:
    return model.predict(query, top_k=top_k)[0]


def batch(model: Any, X: Any, top_k: int = measure.TOP_K, beam: int = measure.BEAM_WIDTH) -> Any:
    rankings = model.predict_proba(X, top_k=top_k)
    entries = [pair for ranking in rankings for pair in ranking]
    indptr = np.concatenate([[0], np.cumsum([len(ranking) for ranking in rankings])])
    scores = np.array([score for _, score in entries])
    labels = np.array([label for label, _ in entries], np.int32)
    return sp.csr_matrix((scores, labels, indptr), shape=(X.shape[0], max(labels, default=0) + 1))

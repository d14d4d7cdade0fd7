"""napkinXC 0.7.2: a probabilistic label tree with its defaults, searched with the same beam as the others."""

import numpy as np
import scipy.sparse as sp
from napkinxc.models import PLT

import measure


def train(X, Y, folder, threads):
    labels = [Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist() for row in range(Y.shape[0])]
    PLT(str(folder), threads=threads, verbose=False).fit(X, labels)


def load(folder, threads):
    beam = {"tree_search_type": "beam", "beam_search_width": measure.BEAM_WIDTH}
    model = PLT(str(folder), threads=threads, verbose=False, **beam)
    model.load()
    return model


def prepare(X, row):
    return X[row]


def one(model, query, top_k=measure.TOP_K, beam=measure.BEAM_WIDTH):
    return model.predict(query, top_k=top_k)[0]


def batch(model, X, top_k=measure.TOP_K, beam=measure.BEAM_WIDTH):
    found = model.predict_proba(X, top_k=top_k)
    sizes = [len(row) for row in found]
    entries = [pair for row in found for pair in row]
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    return sp.csr_matrix(
        (np.array([p for _, p in entries]), np.array([label for label, _ in entries], np.int32), indptr),
        shape=(X.shape[0], max((label for label, _ in entries), default=0) + 1),
    )

"""Run Carya, by default with libpecos's settings, so that both systems train similar models."""

from __future__ import annotations

from typing import Any

from carya import XRLinear
from carya import load as open_model

import measure


def train(X: Any, Y: Any, folder: str, threads: int, **settings: Any) -> None:
    like_libpecos = {"negatives": "teacher", "transform": "l3-hinge"}
    XRLinear(**(like_libpecos | settings), n_jobs=threads).fit(X, Y).save(folder)


def load(folder: str, threads: int) -> Any:
    model = open_model(folder)
    model.set_params(n_jobs=threads)
    return model


def prepare(X: Any, row: int) -> Any:
    return X[[row]]


def one(model: Any, query: Any, top_k: int = measure.TOP_K, beam: int = measure.BEAM_WIDTH) -> Any:
    return model.rank(query, top_k=top_k, beam_width=beam)[0]


def batch(model: Any, X: Any, top_k: int = measure.TOP_K, beam: int = measure.BEAM_WIDTH) -> Any:
    return model.predict(X, top_k=top_k, beam_width=beam)

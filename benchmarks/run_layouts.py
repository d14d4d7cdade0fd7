"""Measure one Carya model with every layout, weight type and beam width for latency.py; print the results as JSON."""

from __future__ import annotations

import argparse
import itertools
from typing import Any

import numpy as np

import carya
from carya import metrics
from carya.core import validation
from carya.trees.beam_search import BeamSearcher
from carya.trees.layer import WEIGHT_DTYPES
from carya.trees.layout_choice import LAYOUTS

import measure

BEAMS = (1, 2, 5, 10, 20, 50)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("features")
    parser.add_argument("model")
    parser.add_argument("--rows", type=int, default=1500)
    arguments = parser.parse_args()
    Xt, Yt = (measure.read(arguments.features, f"{kind}.test.npz") for kind in "XY")
    model = carya.load(arguments.model)
    features = validation.check_features_like(Xt, model.widths_)
    no_dense = np.zeros(0, np.float32)
    rows = [
        (Xt.indices[first:last].astype(np.int32), Xt.data[first:last], no_dense)
        for first, last in itertools.pairwise(Xt.indptr[: arguments.rows + 1])
    ]

    def times(searcher: BeamSearcher, beam_width: int) -> dict[str, float]:
        limits: dict[str, Any] = {"top_k": measure.TOP_K, "beam_width": beam_width}
        single = measure.latency(lambda row: searcher.rank(*rows[row], **limits), len(rows))
        batch = measure.seconds(lambda: searcher.predict(features, threads=1, **limits), 1)
        return single | {"batch_1_ms": batch / features.rows * 1e3}

    layouts = []
    for dtype in WEIGHT_DTYPES:
        layers = [layer.with_weight_dtype(dtype) for layer in model.layers_]
        for layout in LAYOUTS if dtype == "float32" else ("packed",):
            measured = times(BeamSearcher(layers, layout), measure.BEAM_WIDTH)
            layouts.append({"layout": layout, "precision": dtype, **measured})
    beams = []
    searcher = BeamSearcher(model.layers_)
    for beam_width in BEAMS:
        S = model.predict(Xt, top_k=measure.TOP_K, beam_width=beam_width)
        recall = 100 * metrics.recall(Yt, S, k=measure.TOP_K)
        quality = {"recall@10": recall, **measure.precision(Yt, S)}
        beams.append({"beam_width": beam_width, **quality, **times(searcher, beam_width)})
    measure.emit({"layouts": layouts, "beams": beams})


if __name__ == "__main__":
    main()

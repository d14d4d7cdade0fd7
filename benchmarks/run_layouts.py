"""Every layout, precision and beam width of one Carya model, for latency.py. Prints JSON."""

from __future__ import annotations

import argparse

import numpy as np

import carya
from carya import metrics
from carya.core import validation
from carya.trees.beam_search import Searcher
from carya.trees.layer import PRECISIONS
from carya.trees.layouts import LAYOUTS

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
    features = validation.features_like(Xt, model.widths_)
    none = np.zeros(0, np.float32)
    rows = [
        (Xt.indices[first:last].astype(np.int32), Xt.data[first:last], none)
        for first, last in zip(Xt.indptr[: arguments.rows], Xt.indptr[1 : arguments.rows + 1], strict=True)
    ]

    def measured(searcher: Searcher, beam: int) -> dict[str, float]:
        def ask(row: int) -> None:
            searcher.rank(*rows[row], top_k=measure.TOP_K, beam_width=beam)

        def many() -> None:
            searcher.predict(features, top_k=measure.TOP_K, beam_width=beam, threads=1)

        result = measure.latency(ask, len(rows))
        return result | {"batch_1_ms": measure.seconds(many, 1) / features.rows * 1e3}

    layouts = []
    for precision in PRECISIONS:
        layers = [layer.with_precision(precision) for layer in model.layers_]
        for layout in LAYOUTS if precision == "float32" else ("packed",):
            found = measured(Searcher(layers, layout), measure.BEAM_WIDTH)
            layouts.append({"layout": layout, "precision": precision, **found})
    beams = []
    searcher = Searcher(model.layers_)
    for beam in BEAMS:
        S = model.predict(Xt, top_k=measure.TOP_K, beam_width=beam)
        recall = 100 * metrics.recall(Yt, S, k=measure.TOP_K)
        beams.append({"beam_width": beam, "recall@10": recall, **measure.precision(Yt, S), **measured(searcher, beam)})
    measure.emit({"layouts": layouts, "beams": beams})


if __name__ == "__main__":
    main()

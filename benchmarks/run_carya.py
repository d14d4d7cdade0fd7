"""One run of Carya on a feature folder: python run_carya.py FEATURES --threads 2 --seed 0 --negatives teacher"""

from __future__ import annotations

import tempfile
import time

import carya

import measure


def main() -> None:
    arguments = measure.arguments(__doc__)
    X, Y, Xt, Yt = measure.load(arguments.features, arguments.dense)

    class Timed(carya.XRLinear):
        """Notes when the tree is ready."""

        def _index(self, *args, **kwargs):
            tree = super()._index(*args, **kwargs)
            self.index_ready_ = time.perf_counter()
            return tree

    model = Timed(negatives=arguments.negatives, transform="l3-hinge", n_jobs=arguments.threads, seed=arguments.seed)
    measure.reset_peak()
    started = time.perf_counter()
    model.fit(X, Y)
    ended = time.perf_counter()
    result = {
        "index_s": model.index_ready_ - started,
        "train_s": ended - model.index_ready_,
        "total_s": ended - started,
        "train_peak_mb": measure.peak_since_reset_mb(),
    }
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model")
        result["model_bytes"] = measure.folder_bytes(f"{folder}/model")
        started = time.perf_counter()
        model = carya.load(f"{folder}/model")
        result["load_s"] = time.perf_counter() - started
        rows = Xt[0].shape[0] if isinstance(Xt, tuple) else Xt.shape[0]
        model.predict(tuple(b[:50] for b in Xt) if isinstance(Xt, tuple) else Xt[:50])
        started = time.perf_counter()
        S = model.predict(Xt, top_k=measure.TOP_K, beam_width=measure.BEAM_WIDTH)
        result["batch_ms"] = (time.perf_counter() - started) / rows * 1e3
        result |= measure.precision(Yt, S)
        single = [tuple(b[[i]] for b in Xt) if isinstance(Xt, tuple) else Xt[[i]] for i in range(min(rows, 1500))]
        result |= measure.latency(
            lambda row: model.rank(single[row], top_k=measure.TOP_K, beam_width=measure.BEAM_WIDTH), rows
        )
    result["peak_mb"] = measure.peak_mb()
    measure.emit(result)


if __name__ == "__main__":
    main()

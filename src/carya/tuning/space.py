"""The search space: the settings that are tuned, and the configurations that are tried first.

A point of the space is a flat dictionary, as Optuna requires. `Space.suggest` samples a point, and `Space.build`
converts it to an unfitted model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from carya.models.neighbors.model import NearestNeighbors
from carya.models.presets import preset, with_trees
from carya.models.reranked.model import Reranked
from carya.models.xr_linear.model import XRLinear
from carya.ranking.neural import NeuralRanker
from carya.text.text_ranker import TextRanker
from carya.text.tfidf import Tfidf
from carya.tuning.options import MODELS

#: A flat dictionary of settings.
Point = dict[str, Any]

_SHORT = 500  # maximum mean number of characters of short texts, as in Tfidf(analyzer="auto")
_CHAR_NGRAMS = {"4": (4, 4), "3-5": (3, 5), "4-6": (4, 6)}
_TRANSFORMS = {
    "auto": "auto",
    "l4,l5": ("l4-hinge", "l5-hinge"),
    "l4,l6": ("l4-hinge", "l6-hinge"),
}
_NEGATIVES: dict[str, Any] = {"teacher": "teacher", "teacher,both": ("teacher", "both")}
#: Settings of the default model, as a point of the space.
_DEFAULT_TREES: Point = {
    "model": "trees",
    "trees": 1,
    "branching": 32,
    "max_leaf_size": 100,
    "C": 1.0,
    "positive_weight": 1.0,
    "threshold": 0.1,
    "negatives": "teacher,both",
    "loss": "squared-hinge",
    "transform": "auto",
    "beam_width": 10,
}
_DEFAULT_RERANKED: Point = {"model": "accurate", "C": 1.0, "positive_weight": 1.0, "rounds": 2}


@dataclass(frozen=True)
class Space:
    """Search space for one data set.

    Attributes
    ----------
    has_texts : bool
        Whether the rows are texts; the vectorizer is tuned only for texts.
    text_length : float
        The mean number of characters per text.
    stemmers : tuple of str
        The Snowball stemmers to try.
    models : tuple of str
        The model kinds to try: trees, accurate, neural, neighbors.
    seed : int
        The seed of all models.
    """

    has_texts: bool
    text_length: float = 0.0
    stemmers: tuple[str, ...] = ()
    models: tuple[str, ...] = MODELS
    seed: int = 0

    def suggest(self, trial: Any) -> Point:
        """Sample a point; `trial` is an Optuna trial or any object with the same ``suggest_*`` methods."""
        point: Point = {"model": trial.suggest_categorical("model", list(self.models))}
        if self.has_texts:
            point |= self._suggest_features(trial, point["model"])
        if point["model"] == "neighbors":
            point["n_neighbors"] = trial.suggest_int("n_neighbors", 10, 100, log=True)
            return point
        point["C"] = trial.suggest_float("C", 0.125, 8, log=True)
        point["positive_weight"] = trial.suggest_float("positive_weight", 0.25, 2, log=True)
        if point["model"] != "trees":
            point["rounds"] = trial.suggest_categorical("rounds", [1, 2])
            return point
        point["trees"] = trial.suggest_categorical("trees", [1, 2, 3, 5])
        point["branching"] = trial.suggest_categorical("branching", [8, 16, 32, 64])
        point["max_leaf_size"] = trial.suggest_int("max_leaf_size", 20, 800, log=True)
        point["threshold"] = trial.suggest_float("threshold", 0.03, 0.3, log=True)
        point["negatives"] = trial.suggest_categorical("negatives", list(_NEGATIVES))
        point["loss"] = trial.suggest_categorical("loss", ["squared-hinge", "hinge"])
        point["transform"] = trial.suggest_categorical("transform", list(_TRANSFORMS))
        point["beam_width"] = trial.suggest_categorical("beam_width", [10, 20])
        return point

    def _suggest_features(self, trial: Any, model: str) -> Point:
        point: Point = {"word_ngrams": trial.suggest_categorical("word_ngrams", [1, 2, 3])}
        if model == "trees":
            point["units"] = trial.suggest_categorical("units", ["word", "word+char_wb", "char_wb"])
        if model != "trees" or point["units"] != "word":
            point["char_ngrams"] = trial.suggest_categorical("char_ngrams", list(_CHAR_NGRAMS))
        if self.stemmers and point.get("units") != "char_wb":
            point["stemmer"] = trial.suggest_categorical("stemmer", ["none", *self.stemmers])
        point["min_df"] = trial.suggest_categorical("min_df", [1, 2, 3])
        point["lead_weight"] = trial.suggest_categorical("lead_weight", [0.0, 0.5, 1.0])
        return point

    def first_points(self) -> list[Point]:
        """Return the points that are tried first: the default settings, then settings that often perform better."""
        points: list[Point] = []

        def add(base: Point, **changes: Any) -> None:
            if base["model"] in self.models:
                points.append(self._features(base["model"]) | base | changes)

        add(_DEFAULT_TREES)
        add(_DEFAULT_RERANKED)
        add(_DEFAULT_TREES, trees=3, C=0.5, max_leaf_size=400)
        add(_DEFAULT_TREES, trees=3, C=2.0)
        add(_DEFAULT_RERANKED, C=0.5)
        add(_DEFAULT_RERANKED, model="neural")
        if self.has_texts:
            add(_DEFAULT_TREES, trees=3, C=0.5, units="word+char_wb", char_ngrams="4", min_df=1, max_leaf_size=400)
            add(_DEFAULT_RERANKED, C=2.0, min_df=1)
            if self.stemmers:
                add(_DEFAULT_RERANKED, stemmer=self.stemmers[0])
                add(_DEFAULT_TREES, trees=3, stemmer=self.stemmers[0])
        else:
            add(_DEFAULT_RERANKED, C=2.0)
        add({"model": "neighbors", "n_neighbors": 50})
        return points

    def default_point(self) -> Point:
        """Return the point that corresponds to the default model of `carya train`."""
        return self._features("trees") | _DEFAULT_TREES

    def _features(self, model: str) -> Point:
        """Return the default vectorizer settings for a model kind."""
        if not self.has_texts:
            return {}
        point: Point = {"word_ngrams": 2, "min_df": 2, "lead_weight": 0.5}
        if model == "trees":
            is_short = self.text_length <= _SHORT
            point |= {"units": "word+char_wb", "char_ngrams": "4"} if is_short else {"units": "word"}
        else:
            point["char_ngrams"] = "3-5"
        return point | ({"stemmer": "none"} if self.stemmers else {})

    def build(self, point: Mapping[str, Any]) -> Any:
        """Build the unfitted model for a point: a TextRanker for texts, or the underlying model for features."""
        model = self._build_model(point)
        return TextRanker(self._build_vectorizer(point), model) if self.has_texts else model

    def _build_model(self, point: Mapping[str, Any]) -> Any:
        kind = point["model"]
        if kind == "neighbors":
            return NearestNeighbors(over="rows", n_neighbors=point["n_neighbors"], seed=self.seed)
        costs = {"C": point["C"], "positive_weight": point["positive_weight"], "seed": self.seed}
        if kind in ("accurate", "neural"):
            model: Reranked = preset("accurate", **costs)
            return model.clone(n_rounds=point["rounds"], ranker=NeuralRanker() if kind == "neural" else None)
        tree = XRLinear(
            branching=point["branching"],
            max_leaf_size=point["max_leaf_size"],
            threshold=point["threshold"],
            negatives=_NEGATIVES[point["negatives"]],
            loss=point["loss"],
            transform=_TRANSFORMS[point["transform"]],
            beam_width=point["beam_width"],
            **costs,
        )
        return with_trees(tree, point["trees"])

    @staticmethod
    def _build_vectorizer(point: Mapping[str, Any]) -> Tfidf:
        units = point.get("units", "word+char_wb").split("+")
        ranges = {"word": (1, point["word_ngrams"]), "char_wb": _CHAR_NGRAMS[point.get("char_ngrams", "4")]}
        stemmer = point.get("stemmer", "none")
        return Tfidf(
            analyzer=units[0] if len(units) == 1 else tuple(units),
            ngram_range=ranges[units[0]] if len(units) == 1 else tuple(ranges[unit] for unit in units),
            stemmer=None if stemmer == "none" else stemmer,
            min_df=point["min_df"],
            lead_weight=point["lead_weight"],
        )


def describe_point(point: Mapping[str, Any], default: Mapping[str, Any]) -> str:
    """Return a short description of a point: its model, and the settings that differ from the default.

    >>> describe_point({"model": "trees", "trees": 3, "C": 0.5}, {"model": "trees", "trees": 1, "C": 0.5})
    'trees, trees=3'
    """
    parts = [str(point["model"])]
    for name, value in point.items():
        if name != "model" and default.get(name) != value:
            parts.append(f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}")
    return "default" if dict(point) == dict(default) else ", ".join(parts)


def available_models(models: Sequence[str], n_labels: int) -> tuple[str, ...]:
    """Return the model kinds whose packages are installed and that can be trained with this number of labels."""
    import importlib.util

    has_lightgbm = importlib.util.find_spec("lightgbm") is not None
    chosen = [kind for kind in models if kind != "accurate" or has_lightgbm]
    return tuple(chosen) if n_labels > 1 else ("trees",)

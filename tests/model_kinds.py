"""All model kinds and their training data, for the contract tests in test_contract.py.

Add each new model, and each new variant of a model, to :data:`KINDS`, so that all contract tests run on it.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.data import generate_data
from carya.ranking import AveragedRanker, BoostedRanker, NeuralRanker

from matrix_helpers import FORMS, in_form, take_rows
from topics import corpus

#: Value for `top_k` and `beam_width` that exceeds the numbers of labels and clusters, so that nothing is pruned.
EXHAUSTIVE = 10_000


@dataclass(frozen=True)
class ModelKind:
    """A model class with specific parameters, and its expected behavior.

    Attributes
    ----------
    name : str
        Name used in test ids.
    create : callable
        ``create(n_jobs, seed)`` returns an unfitted model.
    form : {"sparse", "dense", "pair", "texts"}
        Format of the input.
    min_precision : float
        Lower bound for P@1 on the training rows.
    brute_force : callable, optional
        ``brute_force(model, inputs)`` returns an array of shape (rows, labels) with the scores of all labels. None if
        they cannot be computed.
    exact : bool
        Whether an exhaustive beam search and `brute_force` return bit-identical scores. Otherwise, the scores are equal
        up to rounding errors.
    requires : tuple of str
        Required packages; if one is missing, the kind is skipped.
    not_saved : frozenset of str
        Parameters that a saved model does not store because fitted components replace them.
    ranks_empty : bool
        Whether the model returns labels for an input without features.
    finds_all : bool
        Whether a ranking always contains `top_k` labels.
    saturates : bool
        Whether scores can round to 0 or 1; labels are ordered by their log scores nevertheless.
    twins_tie : bool
        Whether labels with identical training rows can have exactly the same score.
    """

    name: str
    create: Callable[..., Any]
    form: str = "sparse"
    min_precision: float = 0.85
    brute_force: Callable[[Any, Any], np.ndarray] | None = None
    exact: bool = True
    requires: tuple[str, ...] = ()
    not_saved: frozenset[str] = field(default_factory=frozenset)
    ranks_empty: bool = False
    finds_all: bool = True
    saturates: bool = False
    twins_tie: bool = True

    @property
    def is_available(self) -> bool:
        """Whether all required packages are installed."""
        return all(importlib.util.find_spec(package) is not None for package in self.requires)


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Inputs and labels of training rows, in the format that a model kind accepts."""

    inputs: Any
    labels: Any

    def __len__(self) -> int:
        return self.labels.shape[0] if sp.issparse(self.labels) else len(self.labels)

    def rows(self, numbers: Any) -> Any:
        """Return the inputs selected by a slice or a list of row indices."""
        if not isinstance(self.inputs, list):
            return take_rows(self.inputs, numbers)
        return self.inputs[numbers] if isinstance(numbers, slice) else [self.inputs[number] for number in numbers]

    def copy(self) -> TrainingSet:
        """Return an independent copy."""
        return copy.deepcopy(self)


@functools.cache
def training_set(form: str) -> TrainingSet:
    """Return training rows in one format: 600 generated rows with 120 labels, or 240 texts with 36 labels."""
    if form == "texts":
        return TrainingSet(*corpus(240))
    world = generate_data(600, 120, labels_per_row=2.5, features_per_row=30, seed=3)
    projection = np.random.default_rng(0).standard_normal((world.X.shape[1], 16))
    dense = world.X @ projection
    dense = (dense / np.linalg.norm(dense, axis=1, keepdims=True)).astype(np.float32)
    return TrainingSet(in_form((world.X, dense), form), world.Y)


@functools.cache
def training_set_with_twins(form: str) -> TrainingSet:
    """Return training rows in which labels 2i and 2i + 1 always occur together, so that their scores can tie."""
    data = training_set(form)
    if form == "texts":
        return TrainingSet(data.inputs, [[f"{label}{twin}" for label in row for twin in "ab"] for row in data.labels])
    doubled = sp.csr_array(sp.kron(data.labels, np.ones((1, 2), np.float32)))
    return TrainingSet(data.inputs, doubled)


def rank_one(model: Any, query: Any, **options: Any) -> list[tuple[int, float]]:
    """Return the (label, score) pairs for one input: a feature row, or a list with one text."""
    if isinstance(query, list):
        numbers = {label: number for number, label in enumerate(model.labels_)}
        return [(numbers[suggestion.label], suggestion.score) for suggestion in model.suggest(query[0], **options)]
    labels, scores = model.rank(query, **options)
    return list(zip(labels.tolist(), scores.tolist(), strict=True))


@functools.cache
def encoder_folder() -> str:
    """Save a tiny, randomly initialized encoder and return its folder."""
    import torch

    import tiny_encoders

    torch.set_num_threads(1)  # the tensors are tiny, and several tests may run in parallel
    folder = tempfile.TemporaryDirectory(prefix="carya-encoder-")
    _TEMPORARY.append(folder)
    return str(tiny_encoders.save_encoder("bert", Path(folder.name)))


_TEMPORARY: list[tempfile.TemporaryDirectory[str]] = []  # deleted at exit


def _scores_of_all_labels(model: Any, inputs: Any) -> np.ndarray:
    rows = (inputs[0] if isinstance(inputs, tuple) else inputs).shape[0]
    scores: np.ndarray = model.predict_selected(inputs, np.ones((rows, model.n_labels_))).toarray()
    return scores


def _scores_of_texts(ranker: carya.TextRanker, texts: list[str]) -> np.ndarray:
    return _scores_of_all_labels(ranker.model_, ranker.vectorizer_.transform(texts))


def _mean_scores(ensemble: carya.Ensemble, inputs: Any) -> np.ndarray:
    scores = [_scores_of_all_labels(member, inputs) for member in ensemble.members_]
    return np.average(scores, axis=0, weights=ensemble.weights_)


_SMALL = {"branching": 4, "max_leaf_size": 8}
_TREES: dict[str, dict[str, Any]] = {
    "default": {},
    "one-versus-rest": {"max_depth": 1},
    "one level of clusters": {"max_depth": 2, "branching": 16},
    "deep": {"branching": 2, "max_leaf_size": 5},
    "teacher and matcher": {**_SMALL, "negatives": "both"},
    "paper defaults": {**_SMALL, "negatives": ("teacher", "both"), "transform": ("l3-hinge", "noop")},
    "matcher": {**_SMALL, "negatives": "matcher", "beam_width": 3},
    "hinge": {**_SMALL, "loss": "hinge"},
    "logistic": {**_SMALL, "loss": "logistic", "transform": "sigmoid"},
    "pii": {**_SMALL, "representation": "pii"},
    "spectral": {**_SMALL, "representation": "spectral", "clustering": "kmeans"},
    "graph": {**_SMALL, "representation": "graph"},
    "unbalanced": {"branching": 10, "max_leaf_size": 8, "max_depth": 3, "balanced": False, "bisect": False},
    "random tree": {**_SMALL, "clustering": "random"},
    "max_weights": {**_SMALL, "max_weights": 20},
    "overlapping": {**_SMALL, "clusters_per_label": 3, "beam_width": 2},
    "no bias": {**_SMALL, "bias": 0.0},
}
_NEIGHBORS: dict[str, dict[str, Any]] = {
    "labels": {"n_neighbors": 20},
    "labels, exact": {"n_neighbors": 20, "search": "exact", "weight_dtype": "float32", "similarity_weight": 0.01},
    "labels, logistic": {"n_neighbors": 20, "similarity_weight": 3.0, "transform": "sigmoid", "loss": "logistic"},
    "labels, unranked": {"n_neighbors": 20, "ranker": None},
    "rows": {"over": "rows", "n_neighbors": 20, "max_candidates": 40},
    "rows, unranked": {"over": "rows", "n_neighbors": 20, "ranker": None},
    "labels, graph": {"n_neighbors": 20, "search": "graph", "similarity_weight": 1.0},
    "rows, graph": {"over": "rows", "n_neighbors": 20, "search": "graph", "connectivity": 8},
}


def _tree(n_jobs: int = 2, seed: int = 0, **parameters: Any) -> carya.XRLinear:
    return carya.XRLinear(**parameters, n_jobs=n_jobs, seed=seed)


def _neighbors(n_jobs: int = 2, seed: int = 0, **parameters: Any) -> carya.NearestNeighbors:
    return carya.NearestNeighbors(**parameters, n_jobs=n_jobs, seed=seed)


def _ensemble(n_jobs: int = 2, seed: int = 0, **parameters: Any) -> carya.Ensemble:
    tree = _tree(n_jobs, seed, branching=4, max_leaf_size=8)
    return carya.Ensemble(tree, n_trees=2, n_jobs=n_jobs, seed=seed, **parameters)


def _mixed_ensemble(n_jobs: int = 2, seed: int = 0, **parameters: Any) -> carya.Ensemble:
    members = [
        _tree(n_jobs, seed, branching=4, max_leaf_size=8),
        _neighbors(n_jobs, seed, over="rows", n_neighbors=10),
        _reranked(n_jobs, seed),
    ]
    return carya.Ensemble(members, n_jobs=n_jobs, seed=seed, combine="rank", **parameters)


def _reranked(n_jobs: int = 2, seed: int = 0, ranker: Any = None) -> carya.Reranked:
    tree = _tree(n_jobs, seed, branching=4, max_leaf_size=8)
    return carya.Reranked(tree, ranker or NeuralRanker(epochs=10), n_neighbors=20, n_jobs=n_jobs, seed=seed)


def _text_ranker(model: Callable[..., Any], n_jobs: int = 2, seed: int = 0) -> carya.TextRanker:
    return carya.TextRanker(carya.Tfidf(min_df=1, n_jobs=n_jobs), model(n_jobs, seed))


def _transformer(
    name: str, n_jobs: int = 2, seed: int = 0, encoder: str | None = None, **parameters: Any
) -> carya.XRTransformer | carya.XTransformer:
    model_class = carya.XRTransformer if name == "XRTransformer" else carya.XTransformer
    return model_class(
        encoder=encoder_folder() if encoder is None else encoder,
        pooling="mean",
        max_length=32,
        batch_tokens=256,
        matcher_branching=4,
        matcher_leaf_size=6,
        vectorizer=carya.Tfidf(min_df=1, n_jobs=n_jobs),
        ranker=carya.XRLinear(max_leaf_size=8, n_jobs=n_jobs),
        refit=False,
        device="cpu",
        n_jobs=n_jobs,
        seed=seed,
        **parameters,
    )


def _min_precision(form: str) -> float:
    """Return a lower bound for P@1; the 16 dense features carry less information than the sparse features."""
    return 0.2 if form == "dense" else 0.85


def _trees() -> Iterator[ModelKind]:
    for name, parameters in _TREES.items():
        for form in FORMS:
            yield ModelKind(
                f"XRLinear, {name}, {form}",
                functools.partial(_tree, **parameters),
                form,
                min_precision=_min_precision(form),
                brute_force=_scores_of_all_labels,
                not_saved=frozenset({"tree"}),
                saturates=True,
            )


def _nearest_neighbors() -> Iterator[ModelKind]:
    for name, parameters in _NEIGHBORS.items():
        uses_graph = parameters.get("search") == "graph"
        for form in ["dense"] if uses_graph else FORMS:
            yield ModelKind(
                f"NearestNeighbors, {name}, {form}",
                functools.partial(_neighbors, **parameters),
                form,
                min_precision=_min_precision(form),
                brute_force=None if parameters.get("over") == "rows" else _scores_of_all_labels,
                requires=("usearch",) if uses_graph else (),
                finds_all=parameters.get("over") != "rows",  # the nearest rows can have fewer than top_k labels
                saturates=True,
                twins_tie=parameters.get("ranker", "linear") is None,  # rankers use a separate row order for each label
            )


def _combined() -> Iterator[ModelKind]:
    replaced = frozenset({"members", "n_trees", "weights", "validation_fraction"})
    for form in FORMS:
        yield ModelKind(
            f"Ensemble, trees, {form}",
            _ensemble,
            form,
            min_precision=_min_precision(form),
            brute_force=_mean_scores,
            exact=False,
            not_saved=replaced,
            saturates=True,
        )
        yield ModelKind(
            f"Reranked, {form}",
            _reranked,
            form,
            min_precision=_min_precision(form),
            not_saved=frozenset({"base", "ranker"}),
            twins_tie=False,  # the rank of a candidate is one of its features
        )
    yield ModelKind(
        "Ensemble, count", functools.partial(_ensemble, combine="count"), not_saved=replaced, saturates=True
    )
    yield ModelKind(
        "Ensemble, learned weights",
        functools.partial(_ensemble, weights="learned"),
        brute_force=_mean_scores,
        exact=False,
        not_saved=replaced,
        saturates=True,
    )
    yield ModelKind("Ensemble, mixed", _mixed_ensemble, not_saved=replaced)
    yield ModelKind(
        "Reranked, boosted trees",
        functools.partial(_reranked, ranker=BoostedRanker(n_estimators=10, n_jobs=1)),
        requires=("lightgbm",),
        not_saved=frozenset({"base", "ranker"}),
        twins_tie=False,
    )
    yield ModelKind(
        "Reranked, averaged rankers",
        functools.partial(_reranked, ranker=AveragedRanker([NeuralRanker(epochs=10), NeuralRanker(epochs=5, seed=1)])),
        not_saved=frozenset({"base", "ranker"}),
        twins_tie=False,
    )


def _text_rankers() -> Iterator[ModelKind]:
    models: dict[str, tuple[Callable[..., Any], Callable[[Any, Any], np.ndarray] | None]] = {
        "XRLinear": (functools.partial(_tree, branching=4, max_leaf_size=6), _scores_of_texts),
        "NearestNeighbors over labels": (functools.partial(_neighbors, n_neighbors=20), _scores_of_texts),
        "NearestNeighbors over rows": (functools.partial(_neighbors, over="rows", n_neighbors=20), None),
        "Ensemble": (_ensemble, None),
        "Reranked": (_reranked, None),
    }
    for name, (model, brute_force) in models.items():
        yield ModelKind(
            f"TextRanker, {name}",
            functools.partial(_text_ranker, model),
            "texts",
            min_precision=0.9,
            brute_force=brute_force,
            not_saved=frozenset({"vectorizer", "model"}),
            finds_all="over rows" not in name,
            saturates=True,
            twins_tie=name in ("XRLinear", "Ensemble"),
        )


def _text_ensemble(n_jobs: int = 2, seed: int = 0, **parameters: Any) -> carya.TextEnsemble:
    words = _text_ranker(functools.partial(_tree, branching=4, max_leaf_size=6), n_jobs, seed)
    other_words = carya.TextRanker(carya.Tfidf(min_df=1, use_idf=False, n_jobs=n_jobs), _tree(n_jobs, seed))
    return carya.TextEnsemble([words, other_words], n_jobs=n_jobs, seed=seed, pool_size=100, **parameters)


def _text_reranker(n_jobs: int = 2, seed: int = 0) -> carya.TextReranker:
    base = _text_ranker(functools.partial(_tree, branching=4, max_leaf_size=6), n_jobs, seed)
    return carya.TextReranker(base, NeuralRanker(epochs=40, batch_size=8), seed=seed)


def _mixed_text_ensemble(n_jobs: int = 2, seed: int = 0) -> carya.TextEnsemble:
    members = [
        _text_ranker(functools.partial(_neighbors, over="rows", n_neighbors=10), n_jobs, seed),
        _text_reranker(n_jobs, seed),
    ]
    return carya.TextEnsemble(members, combine="rank", n_jobs=n_jobs, seed=seed)


def _transformer_ensemble(n_jobs: int = 2, seed: int = 0) -> carya.TextEnsemble:
    members = [
        _text_ranker(_tree, n_jobs, seed),
        _transformer("XRTransformer", n_jobs, seed, fine_tune=False),
        _transformer("XTransformer", n_jobs, seed, epochs=1),
    ]
    return carya.TextEnsemble(members, pool_size=100, n_jobs=n_jobs, seed=seed)


def _combined_texts() -> Iterator[ModelKind]:
    replaced = frozenset({"members", "weights", "validation_fraction", "base", "ranker"})
    yield ModelKind("TextEnsemble", _text_ensemble, "texts", min_precision=0.9, not_saved=replaced, saturates=True)
    yield ModelKind(
        "TextEnsemble, learned weights",
        functools.partial(_text_ensemble, weights="learned"),
        "texts",
        min_precision=0.9,
        not_saved=replaced,
        saturates=True,
    )
    yield ModelKind("TextEnsemble, mixed", _mixed_text_ensemble, "texts", not_saved=replaced, twins_tie=False)
    yield ModelKind("TextReranker", _text_reranker, "texts", not_saved=replaced, twins_tie=False)
    yield ModelKind(
        "TextEnsemble with transformers",
        _transformer_ensemble,
        "texts",
        min_precision=0.9,
        requires=("torch", "transformers"),
        not_saved=replaced,
        ranks_empty=True,
    )


def _transformers() -> Iterator[ModelKind]:
    variants: dict[str, dict[str, Any]] = {
        "XRTransformer, fine-tuned": {"epochs": (1, 1)},
        "XRTransformer, frozen": {"fine_tune": False},
        "XTransformer": {"epochs": 1},
    }
    for name, parameters in variants.items():
        yield ModelKind(
            name,
            functools.partial(_transformer, name.partition(",")[0], **parameters),
            "texts",
            min_precision=0.9,
            requires=("torch", "transformers"),
            not_saved=frozenset({"vectorizer", "ranker", "device"}),
            ranks_empty=True,  # an encoder returns an embedding even for an empty text
        )


#: All model kinds; their names are used as test ids.
KINDS = [
    *_trees(),
    *_nearest_neighbors(),
    *_combined(),
    *_text_rankers(),
    *_combined_texts(),
    *_transformers(),
]


def params(kinds: list[ModelKind]) -> list[Any]:
    """Return pytest parameters; kinds with missing packages are skipped, and kinds that require PyTorch are marked."""
    parameters = []
    for kind in kinds:
        marks = []
        if "torch" in kind.requires:
            marks.append(pytest.mark.transformer)
        if not kind.is_available:
            marks.append(pytest.mark.skip(reason=f"requires {', '.join(kind.requires)}"))
        parameters.append(pytest.param(kind, id=kind.name, marks=marks))
    return parameters

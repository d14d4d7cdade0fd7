"""What every model promises, whatever its parameters and whatever form its data come in."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.data import World
from carya.errors import InputError, NotFittedError

MODELS = {
    "default": {},
    "one-versus-rest": {"max_depth": 1},
    "three stages": {"max_depth": 2, "branching": 16},
    "deep": {"branching": 2, "max_leaf": 5},
    "both": {"branching": 4, "max_leaf": 8, "negatives": "both"},
    "as in the paper": {
        "branching": 4,
        "max_leaf": 8,
        "negatives": ("teacher", "both"),
        "transform": ("l3-hinge", "noop"),
    },
    "matcher": {"branching": 4, "max_leaf": 8, "negatives": "matcher", "beam_width": 3},
    "hinge": {"branching": 4, "max_leaf": 8, "loss": "hinge"},
    "logistic": {"branching": 4, "max_leaf": 8, "loss": "logistic", "transform": "sigmoid"},
    "pii": {"branching": 4, "max_leaf": 8, "representation": "pii"},
    "spectral": {"branching": 4, "max_leaf": 8, "representation": "spectral", "clustering": "kmeans"},
    "graph": {"branching": 4, "max_leaf": 8, "representation": "graph"},
    "unbalanced": {"branching": 10, "max_leaf": 8, "max_depth": 3, "balanced": False, "bisect": False},
    "random tree": {"branching": 4, "max_leaf": 8, "clustering": "random"},
    "cut": {"branching": 4, "max_leaf": 8, "max_weights": 20},
    "overlapping": {"branching": 4, "max_leaf": 8, "copies": 3, "beam_width": 2},
    "no bias": {"branching": 4, "max_leaf": 8, "bias": 0.0},
}
FORMS = ["sparse", "dense", "pair"]


def shaped(world: World, pair, form: str):
    return {"sparse": world.X, "dense": pair[1], "pair": pair}[form]


def rows(X, at):
    return (X[0][at], X[1][at]) if isinstance(X, tuple) else X[at]


@pytest.fixture(scope="module", params=MODELS)
def parameters(request: pytest.FixtureRequest) -> dict:
    return MODELS[request.param]


@pytest.fixture(scope="module", params=FORMS)
def fitted(request: pytest.FixtureRequest, parameters: dict, world: World, pair):
    """A model, what it was trained on, and its parameters."""
    X = shaped(world, pair, request.param)
    return carya.XRLinear(n_jobs=2, **parameters).fit(X, world.Y), X, parameters


def same(a: sp.csr_array, b: sp.csr_array) -> bool:
    return (
        np.array_equal(a.indptr, b.indptr) and np.array_equal(a.indices, b.indices) and np.array_equal(a.data, b.data)
    )


def test_it_learns(fitted, world: World) -> None:
    model, X, parameters = fitted
    common = np.bincount(world.Y.indices).max() / world.Y.shape[0]
    floor = 0.6 if parameters.get("clustering") != "random" else 0.45
    if not isinstance(X, tuple) and not sp.issparse(X):
        floor = common  # sixteen random directions tell less
    assert carya.metrics.precision(world.Y, model.predict(X, top_k=1), k=1) > floor


def test_rows_are_sorted_best_first(fitted) -> None:
    model, X, _ = fitted
    S = model.predict(X, top_k=7)
    for row in range(0, S.shape[0], 50):
        scores, labels = S[[row]].data, S[[row]].indices
        assert len(labels) == len(set(labels.tolist())) == 7
        for a, b, i, j in zip(scores, scores[1:], labels, labels[1:], strict=False):
            assert (-a, i) < (-b, j) or a == b == 1  # logarithms near 0 differ where what they stand for does not


def test_batch_is_one_by_one(fitted) -> None:
    model, X, _ = fitted
    S = model.predict(rows(X, slice(0, 40)), top_k=5)
    for row in range(40):
        labels, scores = model.rank(rows(X, [row]), top_k=5)
        assert np.array_equal(labels, S[[row]].indices)
        assert np.array_equal(scores, S[[row]].data)


def test_threads_and_seed_decide_nothing_and_everything(fitted, world: World, tmp_path: Path) -> None:
    model, X, parameters = fitted
    model.save(tmp_path / "two")
    for jobs in (1, 8):
        again = carya.XRLinear(n_jobs=jobs, **parameters).fit(X, world.Y)
        again.set_params(n_jobs=2).save(tmp_path / "other")
        for file in ("manifest.json", "arrays.bin"):
            assert (tmp_path / "two" / file).read_bytes() == (tmp_path / "other" / file).read_bytes()
    assert same(model.predict(X), model.set_params(n_jobs=8).predict(X))
    model.set_params(n_jobs=2)


def test_saved_and_opened_it_ranks_the_same(fitted, tmp_path: Path) -> None:
    model, X, _ = fitted
    model.save(tmp_path / "model")
    opened = carya.load(tmp_path / "model")
    assert opened.get_params() | {"tree": None} == model.get_params() | {"tree": None}
    assert opened.tree_ == model.tree_
    assert same(opened.predict(X, top_k=6), model.predict(X, top_k=6))
    assert all(np.array_equal(a, b) for a, b in zip(opened.rank(rows(X, [3])), model.rank(rows(X, [3])), strict=True))
    opened.save(tmp_path / "again")
    assert (tmp_path / "again" / "arrays.bin").read_bytes() == (tmp_path / "model" / "arrays.bin").read_bytes()


def test_rows_without_features_get_no_labels(fitted) -> None:
    model, X, _ = fitted
    some = rows(X, slice(0, 3))
    empty = tuple(block * 0 for block in some) if isinstance(some, tuple) else some * 0
    S = model.predict(empty)
    assert S.nnz == 0
    assert model.rank(rows(empty, [0]))[0].size == 0


def test_no_rows_is_no_error(fitted) -> None:
    model, X, _ = fitted
    assert model.predict(rows(X, slice(0, 0))).shape == (0, 150)


def test_other_numbers_of_features_are_named(fitted) -> None:
    model, X, _ = fitted
    if isinstance(X, tuple):
        with pytest.raises(InputError, match=r"X has 15 dense columns, the model was trained on 16"):
            model.predict((X[0], X[1][:, 1:]))
        with pytest.raises(InputError, match="must be a pair"):
            model.predict(sp.hstack([X[0], sp.csr_array(X[1])]))
    else:
        with pytest.raises(InputError, match=rf"X has {X.shape[1] - 1} columns, the model was trained on {X.shape[1]}"):
            model.predict(X[:, 1:])
        with pytest.raises(InputError, match=r"x has 2 rows, rank takes one"):
            model.rank(X[[0, 1]])


# What does not depend on the parameters is tested once.


def test_unfitted_models_say_so() -> None:
    model = carya.XRLinear()
    for ask in (model.predict, model.rank, model.save, lambda x: model.predict_selected(x, x)):
        with pytest.raises(NotFittedError, match="not fitted yet: call fit first"):
            ask(np.ones((1, 1)))


@pytest.mark.parametrize("form", FORMS)
def test_what_comes_in_is_not_changed(world: World, pair, form: str) -> None:
    X = shaped(world, pair, form)
    blocks = [*(X if isinstance(X, tuple) else (X,)), world.Y]
    before = [block.copy() for block in blocks]
    model = carya.XRLinear(max_leaf=10, negatives="both").fit(X, world.Y)
    model.predict(X)
    model.predict_selected(X, world.Y)
    model.rank(rows(X, [0]))
    for was, now in zip(before, blocks, strict=True):
        if sp.issparse(now):
            assert same(was, now)
        else:
            assert np.array_equal(was, now)


@pytest.mark.parametrize(
    "form",
    [
        sp.csr_matrix,
        sp.csr_array,
        sp.csc_array,
        sp.coo_array,
        sp.lil_matrix,
        lambda X: X.astype(np.float64),
        lambda X: X.toarray(),
        lambda X: X.toarray().tolist(),
    ],
    ids=["csr_matrix", "csr_array", "csc", "coo", "lil", "float64", "array", "list"],
)
def test_every_form_of_a_matrix_ranks_the_same(model: carya.XRLinear, world: World, form) -> None:
    assert same(model.predict(form(world.X[:30])), model.predict(world.X[:30]))


def test_unsorted_and_repeated_entries_are_added_up(model: carya.XRLinear, world: World) -> None:
    x = world.X[[5]]
    shuffled = np.random.default_rng(0).permutation(x.nnz)
    halves = sp.csr_array(
        (np.tile(x.data[shuffled] / 2, 2), np.tile(x.indices[shuffled], 2), np.array([0, 2 * x.nnz])), shape=x.shape
    )
    assert np.array_equal(model.rank(halves)[0], model.rank(x)[0])


def test_sparse_training_serves_arrays_and_the_other_way_round(world: World, pair) -> None:
    dense = carya.XRLinear(max_leaf=10).fit(pair[1], world.Y)
    assert same(dense.predict(sp.csr_array(pair[1])), dense.predict(pair[1]))


def test_many_threads_may_ask_at_once(model: carya.XRLinear, world: World) -> None:
    want = [model.rank(world.X[[row]]) for row in range(40)]
    wrong = []

    def ask() -> None:
        for row in range(40):
            if not np.array_equal(model.rank(world.X[[row]])[0], want[row][0]):
                wrong.append(row)
        if not same(model.predict(world.X[:40]), batch):
            wrong.append(-1)

    batch = model.predict(world.X[:40])
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_model_survives_pickle_by_its_parameters() -> None:
    """Workers of GridSearchCV are sent unfitted models."""
    sent = pickle.loads(pickle.dumps(carya.XRLinear(max_leaf=7)))
    assert sent.get_params() == carya.XRLinear(max_leaf=7).get_params()


def test_the_beam_of_training_may_be_another(world: World) -> None:
    options = {"branching": 4, "max_leaf": 10}
    narrow, both, wide = (
        carya.XRLinear(**options, **beams).fit(world.X, world.Y)
        for beams in ({"beam_width": 2}, {"beam_width": 5, "training_beam": 2}, {"beam_width": 5})
    )
    assert alike(narrow, both)
    assert not alike(wide, both)
    assert (both.predict(world.X) != wide.predict(world.X)).nnz > 0
    assert (both.predict(world.X) != narrow.predict(world.X, beam_width=5)).nnz == 0


def alike(a: carya.XRLinear, b: carya.XRLinear) -> bool:
    """Whether two models have learned the same."""
    return all(np.array_equal(x.weights.data, y.weights.data) for x, y in zip(a.layers_, b.layers_, strict=True))


def test_a_beam_over_all_clusters_adds_no_negatives(world: World) -> None:
    """Joined with the teacher, a matcher that brings every row everywhere is left out; alone it is obeyed."""
    options = {"branching": 4, "max_leaf": 10, "transform": "l3-hinge"}
    teacher = carya.XRLinear(negatives="teacher", **options).fit(world.X, world.Y)
    wide = carya.XRLinear(negatives="both", beam_width=1000, **options).fit(world.X, world.Y)
    narrow = carya.XRLinear(negatives="both", beam_width=2, **options).fit(world.X, world.Y)
    alone = carya.XRLinear(negatives="matcher", beam_width=1000, **options).fit(world.X, world.Y)
    assert alike(teacher, wide)
    assert not alike(teacher, narrow)
    assert not alike(teacher, alone)

"""Tests for split models whose parts are loaded in this process: results, errors, files and messages."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.core.matrices import Csr, Features
from carya.errors import InputError, ModelFormatError, PartUnavailableError, SaveError
from carya.models.routed import model as routed_module
from carya.models.routed.messages import PartRequest, PartResponse
from carya.models.routed.part import ModelPart

from topics import corpus

X, Y = carya.data.make_world(n_rows=500, n_labels=150, seed=3)
DENSE = np.random.default_rng(0).standard_normal((500, 6)).astype(np.float32)
QUERIES = X[:60]

#: Models that cover all settings that affect the rounding or the comparison of scores.
MODELS: dict[str, tuple[dict[str, Any], Any]] = {
    "default": ({}, None),
    "float32": ({"weight_dtype": "float32"}, None),
    "float16": ({"weight_dtype": "float16"}, None),
    "deep": ({"branching": 3, "max_leaf_size": 4}, None),
    "many labels per cluster": ({"max_depth": 2, "branching": 4, "max_leaf_size": 40}, None),
    "overlapping clusters": ({"clusters_per_label": 3}, None),
    "sigmoid": ({}, "sigmoid"),
    "log-sigmoid": ({}, "log-sigmoid"),
    "no transform": ({}, "noop"),
    "hinge, then no transform": ({}, ("l3-hinge", "noop")),
    "sigmoid, then hinge": ({}, ("sigmoid", "l3-hinge")),
    "hinge, then sigmoid": ({}, ("l3-hinge", "sigmoid")),
    "dense": ({"threshold": 0.0}, "dense"),
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"top_k": 1, "beam_width": 1},
    {"top_k": 3, "beam_width": 2},
    {"top_k": 1000, "beam_width": 1000},
    {"min_score": 0.3},
    {"min_score": 0.3, "top_k": 100, "beam_width": 100},
    {"labels": [3, 50, 51, 52, 149]},
    {"labels": list(range(0, 150, 2)), "top_k": 5, "min_score": 0.01},
]


def train(**parameters: Any) -> carya.XRLinear:
    return carya.XRLinear(**({"branching": 8, "max_leaf_size": 8, "n_jobs": 1} | parameters))


def same(a: Any, b: Any) -> bool:
    """Return whether two matrices have the same entries, in the same order and with the same bits."""
    return (
        np.array_equal(a.indptr, b.indptr)
        and np.array_equal(a.indices, b.indices)
        and a.data.tobytes() == b.data.tobytes()
    )


def split(model: Any, folder: Path, n_parts: int) -> Any:
    """Save and split a model, and load the result with all parts in this process."""
    model.save(folder / "model")
    carya.split_model(folder / "model", folder / "parts", n_parts=n_parts, n_jobs=1)
    return carya.load_routed(folder / "parts" / "top")


@pytest.fixture(scope="module")
def split_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and its three parts."""
    folder = tmp_path_factory.mktemp("split")
    split(train().fit(X, Y), folder, 3)
    return folder


@pytest.mark.parametrize("name", MODELS)
def test_results_are_identical_to_those_of_the_complete_model(name: str, tmp_path: Path) -> None:
    parameters, transform = MODELS[name]
    data: Any = (X, DENSE) if transform == "dense" else X
    queries: Any = (QUERIES, DENSE[:60]) if transform == "dense" else QUERIES
    model = train(**parameters).fit(data, Y)
    if transform not in (None, "dense"):
        model = model.with_transform(transform)
    assert (model.tree_.leaf_labels is not None) == (name == "overlapping clusters")
    for n_parts in (1, 2, 4):
        routed = split(model, tmp_path / str(n_parts), n_parts)
        for options in OPTIONS:
            expected = model.predict(queries, **options)
            assert same(routed.predict(queries, **options), expected), (n_parts, options)
        candidates = sp.csr_array(Y[:60])
        assert same(routed.predict_selected(queries, candidates), model.predict_selected(queries, candidates))


@pytest.mark.parametrize("layout", ["by-label", "by-feature", "hash", "search"])
def test_parts_use_the_layout_of_the_complete_model(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from carya.models.routed import split as split_module
    from carya.models.xr_linear import model as model_module
    from carya.trees.layout_choice import LayoutChoice

    for module in (model_module, split_module, routed_module):
        monkeypatch.setattr(module, "choose_layout", lambda *args, **options: LayoutChoice(layout, "", {}))
    model = train().fit(X, Y)
    routed = split(model, tmp_path, 3)
    assert {part.tree.layout for part in routed._check_fitted().parts} == {layout}
    assert same(routed.predict(QUERIES), model.predict(QUERIES))


@pytest.mark.parametrize("weight_dtype", ["int8", "float16", "float32"])
@pytest.mark.parametrize("max_leaf_size", [4, 30, 200])
def test_scores_do_not_depend_on_the_other_clusters_in_the_beam(weight_dtype: str, max_leaf_size: int) -> None:
    model = train(weight_dtype=weight_dtype, max_leaf_size=max_leaf_size).fit(X, Y)
    everything = model.predict(QUERIES, top_k=150, beam_width=150)
    scores = everything.toarray()
    assert everything.nnz == 60 * 150
    for width in (1, 2, 5):
        narrow = sp.coo_array(model.predict(QUERIES, top_k=20, beam_width=width))
        assert np.array_equal(narrow.data, scores[narrow.row, narrow.col])
    assert np.array_equal(model.predict_selected(QUERIES, np.eye(60, 150)).data, scores.diagonal())


def test_single_queries_and_small_blocks_give_the_same_results(
    split_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, routed = carya.load(split_folder / "model"), carya.load_routed(split_folder / "parts" / "top")
    expected = model.predict(QUERIES)
    monkeypatch.setattr(routed_module, "_MAX_BLOCK_BYTES", 1000)
    assert same(routed.predict(QUERIES), expected)
    assert same(routed.predict(QUERIES, labels=range(0, 150, 3)), model.predict(QUERIES, labels=range(0, 150, 3)))
    for row in range(10):
        labels, scores = routed.rank(QUERIES[[row]])
        single_labels, single_scores = model.rank(QUERIES[[row]])
        assert np.array_equal(labels, single_labels)
        assert np.array_equal(scores, single_scores)
    empty = sp.csr_array((3, X.shape[1]), dtype=np.float32)
    assert routed.predict(empty).nnz == 0
    assert routed.predict(empty[:0]).shape == (0, 150)


def test_text_rankers_keep_names_counts_and_calibration(tmp_path: Path) -> None:
    texts, labels = corpus(seed=1)
    ranker = carya.TextRanker(carya.Tfidf(n_jobs=1), train()).fit(texts, labels, names={labels[0][0]: "A name"})
    ranker.calibrate(*corpus(seed=2))
    routed = split(ranker, tmp_path, 3)
    assert list(routed.labels_) == list(ranker.labels_)
    assert routed.suggest_all(texts[:40]) == ranker.suggest_all(texts[:40])
    few = list(ranker.labels_)[:4]
    assert routed.suggest_all(texts[:9], labels=few, top_k=2) == ranker.suggest_all(texts[:9], labels=few, top_k=2)
    assert routed.suggest(texts[0], top_k=5) == ranker.suggest(texts[0], top_k=5)
    assert routed.calibration_([0.1, 0.5]).tolist() == ranker.calibration_([0.1, 0.5]).tolist()  # type: ignore[misc]
    with pytest.raises(InputError, match="cannot be explained"):
        routed.explain(texts[0], few[0])
    routed.save(tmp_path / "copy" / "top")
    parts = [tmp_path / "parts" / f"part-{number}" for number in range(3)]
    copy = carya.load_routed(tmp_path / "copy" / "top", parts)
    assert copy.suggest_all(texts[:9]) == ranker.suggest_all(texts[:9])


def test_models_keep_label_names(tmp_path: Path) -> None:
    names = [f"label {number}" for number in range(150)]
    model = train().fit(X, Y, label_names=names)
    routed = split(model, tmp_path, 2)
    assert routed.suggest(QUERIES[[0]], top_k=3) == model.suggest(QUERIES[[0]], top_k=3)


def folder_hash(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_splitting_is_deterministic_balanced_and_atomic(split_folder: Path, tmp_path: Path) -> None:
    hashes = []
    for n_jobs in (1, 2, 3):
        carya.split_model(split_folder / "model", tmp_path / "parts", n_parts=3, n_jobs=n_jobs)
        hashes.append(folder_hash(tmp_path / "parts"))
    assert hashes[0] == hashes[1] == hashes[2] == folder_hash(split_folder / "parts")
    assert len(hashes[0]) == 8
    sizes = [part.bytes for part in carya.split_model(split_folder / "model", tmp_path / "parts", n_parts=2)]
    assert sorted(path.name for path in (tmp_path / "parts").iterdir()) == ["part-0", "part-1", "top"]
    assert max(sizes[:2]) < 1.3 * min(sizes[:2])
    assert [path.name for path in tmp_path.iterdir()] == ["parts"]  # no temporary folders remain


def test_parts_contain_all_labels_once(split_folder: Path) -> None:
    parts = [carya.load(split_folder / "parts" / f"part-{number}") for number in range(3)]
    assert all(isinstance(part, ModelPart) for part in parts)
    labels = np.concatenate([part.tree.labels for part in parts])
    assert np.array_equal(np.sort(labels), np.arange(150))
    layer = carya.load(split_folder / "model").layers_[-1]
    assert sum(part.tree.layer.weights.n_weights for part in parts) == layer.weights.n_weights
    weights = [sp.csc_array(part.tree.layer.unpacked().to_scipy()) for part in parts]
    assert (sp.hstack(weights) != layer.unpacked().to_scipy()).nnz == 0


def test_models_that_cannot_be_split_are_rejected(split_folder: Path, tmp_path: Path) -> None:
    def fails(model: Any, message: str, n_parts: int = 2, error: type[Exception] = InputError) -> None:
        with pytest.raises(error, match=message):
            carya.split_model(model, tmp_path / "parts", n_parts=n_parts)
        assert not (tmp_path / "parts").exists()

    carya.Ensemble([train(), train(seed=1)]).fit(X, Y).save(tmp_path / "ensemble")
    fails(tmp_path / "ensemble", "kind 'ensemble'. Only XRLinear")
    train(max_depth=1).fit(X, Y).save(tmp_path / "flat")
    fails(tmp_path / "flat", "no clusters")
    fails(split_folder / "model", "n_parts must be at most", n_parts=1000)
    fails(split_folder / "model", "n_parts must be an integer >= 1", n_parts=0, error=carya.errors.CaryaError)
    fails(split_folder / "parts" / "top", "Pass the unsplit model")
    fails(split_folder / "parts" / "part-0", "kind 'model-part'")
    fails(tmp_path / "missing", "no such folder", error=ModelFormatError)


def test_output_folders_with_other_files_are_not_replaced(split_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("x")
    with pytest.raises(SaveError, match=r"mine\.txt"):
        carya.split_model(split_folder / "model", tmp_path / "notes", n_parts=2)
    assert (tmp_path / "notes" / "mine.txt").read_text() == "x"
    with pytest.raises(SaveError, match="not a folder"):
        carya.split_model(split_folder / "model", tmp_path / "notes" / "mine.txt", n_parts=2)


def test_unsupported_operations_have_clear_errors(split_folder: Path, tmp_path: Path) -> None:
    routed = carya.load(split_folder / "parts" / "top")
    with pytest.raises(InputError, match="3 parts of the model are not connected"):
        routed.predict(QUERIES)
    with pytest.raises(InputError, match="has 3 parts, but 2 were given"):
        routed.connect([split_folder / "parts" / "part-0"] * 2)
    with pytest.raises(InputError, match="not part 1 of"):
        routed.connect([split_folder / "parts" / "part-0"] * 3)
    carya.split_model(split_folder / "model", tmp_path / "other", n_parts=2)
    with pytest.raises(InputError, match="Use the parts and the top of the same split"):
        carya.load(tmp_path / "other" / "top").connect([split_folder / "parts" / f"part-{n}" for n in (0, 1)])
    with pytest.raises(InputError, match="must be a URL"):
        routed.connect(["http://a:80", "ftp://b://x", "http://c:80"])
    with pytest.raises(ModelFormatError, match="not ModelPart"):
        routed.connect([split_folder / "model"] * 3)
    routed = carya.load_routed(split_folder / "parts" / "top")
    for method, arguments in (
        ("explain", {"x": QUERIES[[0]], "label": 0}),
        ("predict", {"X": QUERIES, "transform": "sigmoid"}),
        ("subset", {"labels": [1, 2]}),
        ("save", {"path": tmp_path / "x", "weight_dtype": "float32"}),
    ):
        with pytest.raises(InputError, match="unsplit model"):
            getattr(routed, method)(**arguments)
    with pytest.raises(ModelFormatError, match=r"Use carya\.load"):
        carya.load_routed(split_folder / "model")


def test_unreachable_servers_are_reported_with_the_name_of_the_part(split_folder: Path) -> None:
    routed = carya.load(split_folder / "parts" / "top")
    with pytest.raises(PartUnavailableError, match=r"part-0 is not available: http://127\.0\.0\.1:9: .*refused"):
        routed.connect(["http://127.0.0.1:9,http://127.0.0.1:9"] * 3, timeout=1)
    with pytest.raises(PartUnavailableError, match="is not available") as raised:
        routed.predict(QUERIES)
    assert len(raised.value.problems) == 2


def test_damaged_parts_are_rejected(split_folder: Path, tmp_path: Path) -> None:
    carya.split_model(split_folder / "model", tmp_path / "parts", n_parts=2)
    arrays = tmp_path / "parts" / "part-1" / "arrays.bin"
    data = bytearray(arrays.read_bytes())
    data[len(data) // 2] ^= 1
    arrays.write_bytes(data)
    with pytest.raises(ModelFormatError):
        carya.load_routed(tmp_path / "parts" / "top").predict(X)


def example_request(part: ModelPart, candidates: bool) -> PartRequest:
    """Return a request for all clusters of a part or, with `candidates`, for its first three labels."""
    rows = Features.of(Csr.of_scipy(sp.csr_array(QUERIES[:4])))
    n_clusters = part.tree.n_clusters
    every = np.tile(np.arange(n_clusters, dtype=np.int32), 4)
    starts = Csr.of(np.arange(5) * n_clusters, every, np.full(every.size, -0.5, np.float32), n_clusters)
    wanted = None
    if candidates:
        labels = np.tile(part.tree.labels[:3], 4)
        wanted = Csr.of(np.arange(5) * 3, labels, np.ones(12, np.float32), int(labels.max()) + 1)
    return PartRequest(part.tree.split, part.tree.number, rows, starts, 5, wanted)


@pytest.mark.parametrize("candidates", [False, True])
def test_damaged_messages_are_rejected_or_answered(split_folder: Path, candidates: bool) -> None:
    part = carya.load(split_folder / "parts" / "part-1")
    message = example_request(part, candidates).encode()
    expected = part.answer(part.decode(message))
    restored = PartResponse.decode(expected.encode())
    assert restored.scores.tobytes() == expected.scores.tobytes()
    assert expected.scores.size == 12 if candidates else expected.scores.size == 20
    generator = np.random.default_rng(0)
    header = 8 + int.from_bytes(message[:8], "little")
    outcomes = {"rejected": 0, "answered": 0}
    for trial in range(600):
        data = bytearray(message)
        end = header if trial % 2 else len(data)
        for position in generator.integers(0, end, generator.integers(1, 4)):
            data[position] = generator.integers(0, 256)
        if trial % 5 == 0:
            data = data[: generator.integers(0, len(data))]
        try:
            part.answer(part.decode(bytes(data)))
            outcomes["answered"] += 1
        except InputError:
            outcomes["rejected"] += 1
    assert outcomes["rejected"] > 300
    assert outcomes["answered"] > 20


def test_candidates_of_other_parts_are_rejected(split_folder: Path) -> None:
    parts = [carya.load(split_folder / "parts" / f"part-{number}") for number in range(2)]
    request = example_request(parts[0], True)
    moved = PartRequest(
        request.split, 1, request.queries, example_request(parts[1], False).starts, 1, request.candidates
    )
    with pytest.raises(InputError, match="labels of another part"):
        parts[1].answer(moved)
    few = example_request(parts[0], True)
    nothing = Csr.of_scipy(sp.csr_array((4, few.starts.cols), dtype=np.float32))
    without = PartRequest(few.split, 0, few.queries, nothing, 1, few.candidates)
    with pytest.raises(InputError, match="ancestors"):
        parts[0].answer(without)


def test_block_sizes() -> None:
    blocks = list(routed_module._blocks(np.array([routed_module._MAX_BLOCK_BYTES // 2] * 5)))
    assert [(block.start, block.stop) for block in blocks] == [(0, 2), (2, 4), (4, 5)]
    assert [(block.start, block.stop) for block in routed_module._blocks(np.zeros(0, np.int64))] == [(0, 0)]
    sizes = list(itertools.accumulate([10**7] * 3))
    assert len(list(routed_module._blocks(np.array(sizes)))) == 3

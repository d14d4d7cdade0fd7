"""Tests for tuning: recipes, the validation split, shared features and trees, the search, and `carya tune`."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import carya
from carya.core.storage import load as load_folder
from carya.errors import InputError, ParameterError
from carya.ranking import NeuralRanker
from carya.text.labels import training_labels
from carya.tuning.budget import Budget, parse_duration
from carya.tuning.cache import TrialCache
from carya.tuning.held_out import HeldOutData, split_rows
from carya.tuning.language import guess_language
from carya.tuning.measure import Measured, measure
from carya.tuning.results import TunedTrial, pareto_front
from carya.tuning.search import Search, rungs_of
from carya.tuning.space import Point, Space, describe_point
from carya.tuning.workers.interface import Outcome

from command_line import cli_runner
from topics import corpus

TEXTS, LABELS = corpus(240)
#: LABELS, except that a third of the texts have the labels of other texts, so that no model is perfect.
NOISY_LABELS = [LABELS[(row + 7) % len(LABELS)] if row % 3 == 0 else labels for row, labels in enumerate(LABELS)]


def run(*arguments: str) -> Result:
    from carya.cli.app import app

    return cli_runner().invoke(app, arguments)


def same_model(first: Any, second: Any, folder: Path) -> bool:
    for name, model in (("first", first), ("second", second)):
        model.save(folder / name)
    a, b = (load_folder(folder / name).arrays for name in ("first", "second"))
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


# Durations and languages


def test_durations() -> None:
    assert parse_duration("90s") == 90
    assert parse_duration("1h30m") == 5400
    assert parse_duration("1.5m") == 90
    assert parse_duration(2) == 2
    for wrong in ("", "10 minutes", "m", "-1s", "0s", "1m x", -1, 0, float("nan"), float("inf"), None, True):
        with pytest.raises(ParameterError, match="is not a duration such as 90s"):
            parse_duration(wrong)


def test_languages() -> None:
    assert guess_language(["Die Wirkung von Licht auf den Menschen", "Studien zu der Kunst und das Leben"]) == "german"
    assert guess_language(["The theory of the novel", "A study of the art and for the people"]) == "english"
    assert guess_language(["x86 gtk", "lib64"]) is None
    assert guess_language([]) is None


# The split


def test_adjacent_rows_are_held_out_together() -> None:
    train, validation = split_rows(1_000, 0.15, seed=3)
    assert sorted([*train, *validation]) == list(range(1_000))
    assert validation.size == 160  # eight blocks of 20 consecutive rows
    assert set(np.unique(validation // 20, return_counts=True)[1]) == {20}
    assert not np.array_equal(train, np.sort(train))  # shuffled: the first training rows are a random sample
    assert np.array_equal(split_rows(1_000, 0.15, seed=3)[1], validation)
    assert not np.array_equal(split_rows(1_000, 0.15, seed=4)[1], validation)
    assert split_rows(1_000_000, 0.5, seed=0)[1].size == 6_000
    with pytest.raises(InputError, match="at least 40 rows, got 39"):
        split_rows(39, 0.15, seed=0)


def test_models_for_few_rows_are_measured_on_fewer_rows(tmp_path: Path) -> None:
    Y, _ = training_labels([["a"], ["b"]] * 20_000)
    data = HeldOutData.store(tmp_path, texts=["x"] * 40_000, labels=Y, validation_fraction=0.15, seed=0)
    assert data.validation.size == 6_000
    sizes = {n_rows: data.validation_rows(n_rows) for n_rows in (1_000, 5_000, 34_000)}
    assert {n_rows: rows.size for n_rows, rows in sizes.items()} == {1_000: 2_000, 5_000: 2_500, 34_000: 6_000}
    assert set(sizes[1_000]) < set(data.validation)
    assert data.validation_labels(5_000).shape == (2_500, 2)


# Recipes


ESTIMATORS = {
    "tree": carya.TextRanker(carya.Tfidf(min_df=1, stemmer="english"), carya.XRLinear(max_leaf_size=4, C=(0.5, 2.0))),
    "ensemble": carya.TextRanker(
        carya.Tfidf(analyzer=("word", "char_wb"), ngram_range=((1, 2), (3, 4))),
        carya.Ensemble(carya.XRLinear(max_leaf_size=4, threshold=0.05), n_trees=2),
    ),
    "mixed": carya.TextRanker(None, carya.Ensemble([carya.XRLinear(branching=2), carya.NearestNeighbors(over="rows")])),
    "reranked": carya.TextRanker(None, carya.Reranked(carya.XRLinear(max_leaf_size=4), NeuralRanker(epochs=10))),
}


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_recipes_train_the_same_model(kind: str, tmp_path: Path) -> None:
    recipe = carya.Recipe(ESTIMATORS[kind], {"P@1": 0.5})
    recipe.save(tmp_path / "recipe.json")
    loaded = carya.Recipe.load(tmp_path / "recipe.json")
    assert loaded.measured == {"P@1": 0.5}
    assert loaded.to_dict() == recipe.to_dict()
    fitted = loaded.build(n_jobs=1).fit(TEXTS, LABELS)
    assert same_model(ESTIMATORS[kind].clone().fit(TEXTS, LABELS), fitted, tmp_path)
    assert not hasattr(recipe.estimator, "_state")


def test_recipes_store_all_settings_but_not_those_of_the_machine() -> None:
    stored = carya.Recipe(carya.XRLinear(n_jobs=3, memory="4GB", checkpoint_dir="x", verbose=True)).to_dict()
    parameters = stored["model"]["parameters"]
    assert parameters["branching"] == 32  # a default
    assert not {"n_jobs", "memory", "checkpoint_dir", "verbose", "tree"} & parameters.keys()


def damaged(change: Any) -> Any:
    content = json.loads(json.dumps(carya.Recipe(carya.TextRanker(carya.Tfidf(), carya.XRLinear())).to_dict()))
    change(content)
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "is not a recipe"),
        ({"format": "other"}, "is not a recipe"),
        (damaged(lambda recipe: recipe.update(version=2)), "has version 2"),
        (damaged(lambda recipe: recipe.pop("model")), "must have a class and parameters"),
        (damaged(lambda recipe: recipe["model"].update({"class": "os.system"})), "Unknown class 'os.system'"),
        (damaged(lambda recipe: recipe["model"].update({"class": ["XRLinear"]})), "Unknown class"),
        (damaged(lambda recipe: recipe["model"]["parameters"].update(modle=1)), "Did you mean 'model'"),
        (damaged(lambda recipe: recipe["model"]["parameters"]["model"]["parameters"].update(C=-1)), "C must be"),
        (damaged(lambda recipe: recipe.update(model=recipe["model"]["parameters"]["vectorizer"])), "must be a ranker"),
    ],
)
def test_damaged_recipes_are_rejected(content: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(InputError, match=message) as raised:
        carya.Recipe.load(path)
    assert str(raised.value).startswith(str(path))


def test_files_that_are_not_recipes_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        carya.Recipe.load(tmp_path / "missing.json")
    for data in (b"{", b"\xff", b"[" * 100_000):
        (tmp_path / "bad.json").write_bytes(data)
        with pytest.raises(InputError, match="not valid JSON"):
            carya.Recipe.load(tmp_path / "bad.json")
    (tmp_path / "bad.json").write_bytes(b" " * 2_000_000)
    with pytest.raises(InputError, match="more than 1,048,576 bytes"):
        carya.Recipe.load(tmp_path / "bad.json")


def test_recipes_cannot_contain_other_objects() -> None:
    with pytest.raises(InputError, match="label tree"):
        carya.Recipe(carya.XRLinear(tree=carya.LabelTree.flat(3))).to_dict()
    with pytest.raises(InputError, match="cannot contain XRTransformer"):
        carya.Recipe(carya.XRTransformer()).to_dict()


# Trials


@pytest.fixture
def data(tmp_path: Path) -> HeldOutData:
    Y, ids = training_labels(NOISY_LABELS)
    return HeldOutData.store(tmp_path / "data", texts=TEXTS, labels=Y, label_texts=ids, validation_fraction=0.2, seed=0)


@pytest.mark.parametrize("kind", ["tree", "ensemble", "reranked"])
def test_trials_measure_the_model_that_a_text_ranker_trains(kind: str, data: HeldOutData) -> None:
    estimator = ESTIMATORS[kind]
    if kind == "reranked":
        estimator = estimator.clone(vectorizer=carya.Tfidf(analyzer=("word", "char_wb"), ngram_range=((1, 2), (3, 5))))
    cache = TrialCache(data, threads=1)
    rows = data.training_rows(120)
    assert np.array_equal(data.validation_rows(120), data.validation)
    fitted = estimator.clone().fit([TEXTS[row] for row in rows], [NOISY_LABELS[row] for row in rows])
    Y = fitted.label_matrix_and_ids([NOISY_LABELS[row] for row in data.validation])[0]
    S = fitted.predict([TEXTS[row] for row in data.validation], top_k=5)
    S.resize(Y.shape)
    expected = carya.metrics.report(Y, S)
    for _ in range(2):  # the second run uses features and trees from the cache
        measured = measure(estimator, 120, data, cache, threads=1)
        for metric in ("P@1", "P@3", "P@5", "R@5", "nDCG@5"):
            assert measured.metrics[metric] == pytest.approx(expected[metric])
            assert 0.1 < expected[metric] < 1
    n_trees = {"tree": 1, "ensemble": 2, "reranked": 0}[kind]
    assert (cache.hits, cache.misses) == (1 + n_trees, 1 + n_trees)
    arrays = fitted.to_saved().arrays
    # Trials do not store the labels and the hashes of the training rows, which are the same for all settings.
    excluded = sum(array.nbytes for name, array in arrays.items() if name.startswith(("labels.", "training_rows")))
    assert measured.n_bytes == sum(array.nbytes for array in arrays.values()) - excluded


def test_trials_on_features_need_no_vectorizer(tmp_path: Path) -> None:
    X, Y = carya.data.make_world(400, 30, seed=1)
    from carya.models.training_data import TrainingData

    checked = TrainingData.of((X, X[:, :5].toarray()), Y)
    data = HeldOutData.store(
        tmp_path, features=checked.features, labels=checked.labels, validation_fraction=0.2, seed=0
    )
    measured = measure(carya.XRLinear(max_leaf_size=4), 200, data, TrialCache(data, threads=1), threads=1)
    rows = data.training_rows(200)
    model = carya.XRLinear(max_leaf_size=4).fit((X[rows], X[rows][:, :5].toarray()), Y[rows])
    held_out = X[data.validation], X[data.validation][:, :5].toarray()
    assert measured.metrics["P@1"] == pytest.approx(model.score(held_out, Y[data.validation]))


def test_a_full_cache_deletes_the_features_that_were_used_least_recently(data: HeldOutData) -> None:
    cache = TrialCache(data, threads=1, max_bytes=1)
    small, large = carya.Tfidf(ngram_range=(1, 1)), carya.Tfidf()
    for _ in range(2):
        cache.features(small, 100)
        cache.features(large, 100)
    assert (cache.hits, cache.misses) == (0, 4)
    roomy = TrialCache(data, threads=1)
    for _ in range(2):
        roomy.features(small, 100)
        roomy.features(large, 100)
    assert (roomy.hits, roomy.misses) == (3, 1)


# The space


class Lowest:
    """Trial that always suggests the first choice or the lowest number, and records the parameter names."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def suggest_categorical(self, name: str, choices: list[Any]) -> Any:
        self.names.append(name)
        return choices[0]

    def suggest_float(self, name: str, low: float, high: float, *, log: bool) -> Any:
        self.names.append(name)
        return low

    def suggest_int(self, name: str, low: int, high: int, *, log: bool) -> Any:
        self.names.append(name)
        return low


@pytest.mark.parametrize("has_texts", [True, False])
@pytest.mark.parametrize("length", [100, 1_000])
def test_all_first_points_are_valid_models(has_texts: bool, length: int) -> None:
    space = Space(has_texts, length, ("english",) if has_texts else ())
    points = space.first_points()
    assert points[0] == space.default_point()
    for point in [*points, space.suggest(Lowest())]:
        carya.Recipe.from_dict(carya.Recipe(space.build(point)).to_dict())  # raises an error for invalid settings
    assert describe_point(points[0], points[0]) == "default"


@pytest.mark.parametrize("length", [100, 1_000])
def test_the_default_point_is_the_default_model(length: int, tmp_path: Path) -> None:
    texts = [text + " " * (length - len(text)) for text in TEXTS]
    model = Space(True, length).build(Space(True, length).default_point())
    assert same_model(model.fit(texts, LABELS), carya.TextRanker().fit(texts, LABELS), tmp_path)


# The search


class FakeWorkers:
    """Workers that advance the clock instead of training; the metric of a trial depends on its point."""

    def __init__(self, seconds_per_row: float = 0.001) -> None:
        self.now = 0.0
        self.n_idle = 1
        self.started: list[tuple[int, int]] = []
        self.points: list[Point] = []
        self._seconds_per_row = seconds_per_row
        self._task: tuple[int, Point, int] | None = None

    @property
    def running(self) -> list[int]:
        return [] if self._task is None else [self._task[0]]

    def start(self, number: int, point: Point, n_rows: int) -> None:
        self.started.append((number, n_rows))
        self.points.append(point)
        self._task, self.n_idle = (number, point, n_rows), 0

    def wait(self, timeout: float) -> list[Outcome]:
        assert self._task is not None
        number, point, n_rows = self._task
        seconds = n_rows * self._seconds_per_row
        if timeout < seconds:
            self.now += timeout
            self._seconds_per_row = math.inf  # never finishes
            return []
        self.now += seconds
        self._task, self.n_idle = None, 1
        if point["model"] == "neighbors":
            return [Outcome(number, None, "no neighbors")]
        value = 0.5 - 0.1 * abs(math.log2(point["C"] / 0.25)) + n_rows / 1e6
        return [Outcome(number, Measured({"P@1": value}, 10.0, 1000, seconds))]


def searched(rungs: list[int], *, seconds: float = 1e9, max_trials: int | None = None, **settings: Any) -> Any:
    workers = FakeWorkers(**settings)
    budget = Budget(seconds, clock=lambda: workers.now)
    search = Search(Space(False), rungs, metric="P@1", budget=budget, max_trials=max_trials)
    original = workers.wait
    workers.wait = lambda timeout: original(math.inf if seconds == 1e9 else timeout)  # type: ignore[method-assign]
    search.run(workers)  # type: ignore[arg-type]
    return search, workers


def test_rungs() -> None:
    assert rungs_of(100) == [100]
    assert rungs_of(36_000) == [4_000, 12_000, 36_000]
    assert rungs_of(10**9)[0] == 10**9 // 27


def test_the_default_is_first_and_is_always_trained_on_all_rows() -> None:
    search, workers = searched([10, 30, 90], max_trials=12)
    assert workers.points[0] == search.space.default_point()
    assert [rows for number, rows in workers.started if number == 0] == [10, 30, 90]
    assert [rows for number, rows in workers.started if number == 1] == [10, 90]
    assert len(search.attempts) == 12


def test_only_the_best_third_is_trained_on_more_rows_until_the_end() -> None:
    search, workers = searched([10, 30], max_trials=30)
    last_new = max(place for place, (_, rows) in enumerate(workers.started) if rows == 10)
    n_checked = 0
    for place, (number, rows) in enumerate(workers.started[:last_new]):
        if rows == 30 and number > 1:  # the first two configurations are always promoted
            earlier = [search.attempts[other] for other, few in workers.started[:place] if few == 10]
            values = sorted((a.results[0].metrics["P@1"] for a in earlier if 0 in a.results), reverse=True)
            assert search.attempts[number].results[0].metrics["P@1"] >= values[math.ceil(len(values) / 3) - 1]
            n_checked += 1
    assert 3 < n_checked < 25
    best = max((a for a in search.attempts if a.results), key=lambda a: a.results[0].metrics["P@1"])
    assert len(best.results) == 2


def test_the_search_finds_a_better_c_than_the_first_points() -> None:
    search, _ = searched([10], max_trials=60)
    values = {trial.number: trial.measured.metrics["P@1"] for trial in search.trials if trial.measured}
    best = max(values, key=values.__getitem__)
    assert search.attempts[best].point["C"] == pytest.approx(0.25, rel=0.25)  # depends on the version of Optuna
    assert values[best] > max(values[number] for number in values if number < 8)


def test_the_search_is_reproducible() -> None:
    first, second = (searched([10, 30], max_trials=20)[0] for _ in range(2))
    assert [trial.settings for trial in first.trials] == [trial.settings for trial in second.trials]


def test_failed_trials_do_not_end_the_search() -> None:
    search, _ = searched([10], max_trials=40)
    failed = [trial for trial in search.trials if trial.error == "no neighbors"]
    assert failed
    assert len(search.trials) == 40


def test_running_trials_are_stopped_at_the_end_of_the_budget() -> None:
    search, workers = searched([1_000], seconds=2.25, seconds_per_row=0.0002)
    assert search.budget.elapsed <= 2.25 + 0.25
    assert any(trial.error == "stopped at the end of the budget" for trial in search.trials) or not workers.running


@pytest.mark.parametrize(("seconds", "n_rows"), [(5.0, {10, 100}), (0.9, {10})])
def test_trials_that_do_not_fit_are_not_started(seconds: float, n_rows: set[int]) -> None:
    # Training on 10 rows takes 0.2 seconds, so the estimates for 100 rows are at least 1.2 seconds. The first two
    # configurations are started on 100 rows if at least 60% of the estimated time remains.
    search, workers = searched([10, 100], seconds=seconds, seconds_per_row=0.02)
    assert {rows for _, rows in workers.started} == n_rows
    assert search.budget.elapsed <= seconds + 0.25


def test_the_live_table_shows_the_best_trials_first() -> None:
    from rich.console import Console

    from carya.cli.tuning.live_table import _live_view

    search, _ = searched([10, 30], max_trials=8)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(_live_view(search))
    lines = console.export_text().splitlines()
    shown = [float(line.split("│")[3]) for line in lines if "│" in line and line.split("│")[3].strip()[:1].isdigit()]
    best = max(trial.measured.metrics["P@1"] for trial in search.trials if trial.measured and trial.is_complete)
    assert shown[0] == pytest.approx(100 * best, abs=0.006)
    assert "8 configurations; elapsed" in lines[-2]


# The Pareto front


def trial(number: int, precision: float, microseconds: float, n_bytes: int, *, complete: bool = True) -> TunedTrial:
    return TunedTrial(number, {}, "", 1, complete, Measured({"P@1": precision}, microseconds, n_bytes, 1.0))


def test_pareto_front() -> None:
    trials = [
        trial(0, 0.5, 10, 100),
        trial(1, 0.6, 20, 200),
        trial(2, 0.6, 20, 201),  # larger than trial 1
        trial(3, 0.4, 9, 300),  # the fastest
        trial(4, 0.4, 11, 99),  # the smallest
        trial(5, 0.4, 12, 100),  # dominated by trial 0
        trial(6, 0.9, 1, 1, complete=False),
        TunedTrial(7, {}, "", 1, True, None, "failed"),
    ]
    assert [trial.number for trial in pareto_front(trials, "P@1")] == [1, 0, 3, 4]


# The public function and the command


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuning")
    lines = [json.dumps({"text": text, "labels": labels}) for text, labels in zip(TEXTS, LABELS, strict=True)]
    (folder / "train.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def test_tune_and_train(files: Path, tmp_path: Path) -> None:
    recipe, front, trials = tmp_path / "recipe.json", tmp_path / "front", tmp_path / "trials.jsonl"
    options = ["--budget", "5m", "--max-trials", "4", "--models", "trees,neural", "--parallel", "2", "--threads", "2"]
    outputs = ["-o", str(recipe), "--front", str(front), "--trials", str(trials)]
    result = run("tune", str(files / "train.jsonl"), *options, *outputs, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["rows"] + report["validation_rows"] == len(TEXTS)
    assert len(report["trials"]) == 4
    assert report["best"]["P@1"] == max(one["P@1"] for one in report["trials"])
    assert report["reused"] > 0
    assert len(trials.read_text(encoding="utf-8").splitlines()) == 4
    assert {path.name for path in front.iterdir()} == {f"trial-{number}.json" for number in report["front"]}

    result = run("train", str(files / "train.jsonl"), "--recipe", str(recipe), "-o", str(tmp_path / "model"), "-q")
    assert result.exit_code == 0, result.output
    expected = carya.Recipe.load(recipe).build().fit(TEXTS, LABELS)
    assert same_model(carya.load(tmp_path / "model"), expected, tmp_path)


def test_tune_prints_a_table(files: Path, tmp_path: Path) -> None:
    source, out = str(files / "train.jsonl"), str(tmp_path / "recipe.json")
    result = run("tune", source, "--max-trials", "1", "--models", "trees", "--parallel", "1", "-o", out)
    assert result.exit_code == 0, result.output
    assert "Pareto front of P@1, latency and size" in result.stdout
    assert "trial 0, P@1" in result.stdout
    assert "rows: P@1" in result.stderr  # one line per trial, because standard error is not a terminal


def test_tuning_on_features() -> None:
    X, Y = carya.data.make_world(300, 20, seed=1)
    tuning = carya.tune(X, Y, budget="5m", max_trials=2, models=["trees"], n_parallel=1, n_jobs=1)
    assert isinstance(tuning.recipe.build().fit(X, Y), (carya.XRLinear, carya.Ensemble))
    assert tuning.recipe_of(1).estimator.n_trees == 3
    with pytest.raises(InputError, match="no trial with number 7"):
        tuning.recipe_of(7)


def test_limits_exclude_trials() -> None:
    options: dict[str, Any] = {"budget": "5m", "max_trials": 3, "models": ["trees"], "n_parallel": 1, "n_jobs": 1}
    sizes = [trial.measured.n_bytes for trial in carya.tune(TEXTS, LABELS, **options).trials if trial.measured]
    limited = carya.tune(TEXTS, LABELS, max_bytes=min(sizes), **options)
    assert limited.best.measured is not None
    assert limited.best.measured.n_bytes == min(sizes)
    with pytest.raises(InputError, match="No trial satisfies max_latency and max_bytes"):
        carya.tune(TEXTS, LABELS, max_bytes=1, **options)


def test_invalid_options() -> None:
    for options, message in [
        ({"budget": "ten"}, "budget must be a duration"),
        ({"budget": 0}, "budget must be"),
        ({"metric": "accuracy"}, "metric must be"),
        ({"models": ["forest"]}, "models must be a non-empty list of these values: trees"),
        ({"models": "trees"}, "models must be a non-empty list"),
        ({"stemmers": ["klingon"]}, "klingon"),
        ({"n_parallel": 0}, "n_parallel must be"),
        ({"validation_fraction": 0.9}, "validation_fraction must be"),
    ]:
        with pytest.raises(ParameterError, match=message):
            carya.tune(TEXTS, LABELS, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least 40 rows"):
        carya.tune(TEXTS[:10], LABELS[:10])
    with pytest.raises(InputError, match="same length"):
        carya.tune(TEXTS, LABELS[:-1])
    with pytest.raises(InputError, match="labels is missing"):
        carya.tune(TEXTS)
    with pytest.raises(InputError, match="require texts"):
        carya.tune(*carya.data.make_world(100, 5, seed=0), names={"0": "a"})


def test_recipes_cannot_be_combined_with_other_settings(files: Path, tmp_path: Path) -> None:
    source, recipe = str(files / "train.jsonl"), tmp_path / "recipe.json"
    carya.Recipe(carya.TextRanker(carya.Tfidf(), carya.XRLinear())).save(recipe)
    base = ["train", source, "--recipe", str(recipe), "-o", str(tmp_path / "model"), "-q"]
    for options in (["--preset", "fast"], ["--branching", "8"], ["--model", "xr-transformer"], ["--epochs", "2"]):
        result = run(*base, *options)
        assert isinstance(result.exception, ParameterError), options
        assert f"{options[0]} cannot be combined with --recipe" in str(result.exception)
    assert run(*base, "--threads", "1").exit_code == 0


def test_recipes_for_features_are_not_used_for_texts(files: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.json"
    carya.Recipe(carya.XRLinear()).save(recipe)
    result = run("train", str(files / "train.jsonl"), "--recipe", str(recipe), "-o", str(tmp_path / "model"), "-q")
    assert "is a recipe for features, but" in str(result.exception)

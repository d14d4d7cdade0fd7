"""`carya train`: train a model and save it."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from carya.cli.commands import Command, Option, command, option
from carya.cli.options.common import PATH, command_progress, force_option, json_option, quiet_option, record_option
from carya.cli.options.data_options import DataOptions, data_options, texts_and_labels
from carya.cli.options.label_files import LabelFiles, label_file_options
from carya.cli.options.parameter_flags import flag, given_parameters, parameter_options
from carya.cli.options.rule_type import RuleType
from carya.cli.shared.inputs import counted
from carya.cli.shared.outputs import check_model_output, check_recording, save_training_record
from carya.cli.shared.tree_models import build_text_ranker, preset_option, tree_options, tree_parameters, trees_option
from carya.core.rules import Choice
from carya.errors import InputError, ParameterError

if TYPE_CHECKING:
    from carya.core.parameters import Parameterized
    from carya.data.corpus import Corpus, Matrices
    from carya.text.labels import LabelRows

_TRANSFORMERS = {"xr-transformer": "XRTransformer", "x-transformer": "XTransformer"}
_MIN_LABELS_FOR_WARNING = 100  # in smaller data sets, labels that occur once are to be expected
_MODELS = ("xr-linear", *_TRANSFORMERS)
#: Parameters that do not affect the trained model and can therefore be combined with a recipe.
_MACHINE_PARAMETERS = ("n_jobs", "checkpoint_dir", "memory")
#: Presets that are ensembles of transformer models, with their descriptions.
_TRANSFORMER_PRESETS = {
    "xr-transformer": "Zhang et al. 2021: an ensemble of XR-Transformers, one per encoder (--encoders)",
    "x-transformer": "Chang et al. 2020: an ensemble of X-Transformers, three per encoder (--encoders)",
}


def _transformer_parameters() -> type[Parameterized]:
    """Return the class that declares the parameters of all transformer models, without importing PyTorch."""
    from carya.transformer.settings import TransformerSettings

    return TransformerSettings


def _generate_options() -> list[Option]:
    """Return the options for the parameters of the vectorizer and the models."""
    linear = tree_options()
    linear.append(
        Option(
            ["--ray"],
            metavar="ADDRESS",
            heading="Training",
            help="Train on a Ray cluster: auto for the cluster on this machine, or HOST:PORT. Requires "
            "--checkpoint, a folder that all machines share.",
        )
    )
    names = {generated.name for generated in linear}
    transformer = parameter_options([_transformer_parameters()], {"other": "Transformer"})
    return [*linear, *(generated for generated in transformer if generated.name not in names)]


class _TrainCommand(Command):
    """A command whose help also lists the presets."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the presets."""
        from carya.models.presets import ADVICE, PRESETS

        super().format_options(ctx, formatter)
        with formatter.section("Choosing a preset"):
            formatter.write_dl(list(ADVICE))
        with formatter.section("Presets (--preset)"):
            descriptions = {name: preset.description for name, preset in PRESETS.items()} | _TRANSFORMER_PRESETS
            formatter.write_dl(list(descriptions.items()))


@command(
    "train",
    cls=_TrainCommand,
    generate_options=_generate_options,
    examples=[
        "carya train data/ -o model/",
        "carya train train.jsonl -o model/ --preset fast",
        "carya train train.jsonl -o model/ --trees 3 --negatives teacher",
        "carya train data/ -o model/ --model xr-transformer --encoder sentence-transformers/all-MiniLM-L6-v2",
        "carya train data/ -o model/ --preset xr-transformer --encoders encoders/bert,encoders/roberta",
        "carya train train.csv -o model/ --text-column title,abstract --label-separator '|'",
        "carya train texts.txt --labels labels.txt -o model/ --analyzer word,char_wb --ngram-range 1,2/3,5",
        "carya train data/ -o model/ --calibrate",
        "carya train data/ -o model/ --checkpoint checkpoints/",
        "carya train data/ -o model/ --recipe recipe.json",
        "carya train data/ -o model/ --preset accurate --vocabulary subjects.ttl --unseen-labels",
        "zcat data.jsonl.gz | carya train - --format jsonl -o model/",
    ],
)
@data_options(part="train", stored=False)
@option(
    "--model",
    "model_name",
    type=RuleType(Choice(*_MODELS)),
    default="xr-linear",
    show_default=True,
    metavar=f"[{'|'.join(_MODELS)}]",
    heading="Model",
    help="Model to train.",
)
@preset_option("Named settings, listed below; other options override them.")
@trees_option(
    "Number of trees; several trees form an ensemble. With a transformer preset, the number of trees per encoder."
)
@option(
    "--encoders",
    metavar="NAME,...",
    heading="Model",
    help="Encoders for --preset xr-transformer and x-transformer: folders or Hugging Face Hub names, separated by "
    "commas; by default, the encoders used in the paper.",
)
@option(
    "--recipe",
    type=PATH,
    metavar="FILE",
    heading="Model",
    help="Recipe written by `carya tune`; it contains all settings of the model.",
)
@option(
    "--out", "-o", type=PATH, required=True, metavar="FOLDER", heading="Output", help="Folder to save the model to."
)
@option(
    "--calibrate",
    is_flag=True,
    heading="Model",
    help="Learn the probability that a suggested label is correct, from held-out predictions of three additional "
    "models that are each trained on two thirds of the rows.",
)
@force_option
@record_option("Record the training time for `carya report`.")
@quiet_option
@json_option
@option(
    "--unseen-labels",
    is_flag=True,
    heading="Data",
    help="Rank all labels in --vocabulary by their names, including labels without training texts.",
)
@label_file_options
@click.pass_context
def train(
    context: click.Context,
    /,
    data: DataOptions,
    label_files: LabelFiles,
    model_name: str,
    preset: str | None,
    trees: int | None,
    encoders: str | None,
    recipe: Path | None,
    ray: str | None,
    out: Path,
    calibrate: bool,
    force: bool,
    record: Path | None,
    quiet: bool,
    as_json: bool,
    unseen_labels: bool,
    **_parameters: Any,
) -> None:
    """Train a model on texts or feature matrices, and save it.

    DATA contains texts or features in any format described in docs/data.md; labels in a separate file are passed with
    --labels. The model stores the options used to read the data; `carya predict` and `carya evaluate` use them by
    default.
    """
    from carya.core.parameters import set_in_all
    from carya.core.storage import size_on_disk
    from carya.data.corpus import Matrices

    if (preset in _TRANSFORMER_PRESETS or model_name in _TRANSFORMERS) and label_files.given():
        raise ParameterError(f"{label_files.given()[0]} requires --model xr-linear, got --model {model_name}.")
    if unseen_labels and data.vocabulary is None:
        raise ParameterError("--unseen-labels requires --vocabulary, which lists the labels.")
    if unseen_labels and preset in _TRANSFORMER_PRESETS:
        raise ParameterError(f"--unseen-labels cannot be combined with --preset {preset}. Use --model {preset}.")
    estimator = _build_estimator(context, model_name, preset, trees, encoders, recipe, verbose=not quiet)
    engine = _make_engine(context, estimator, ray) | ({"calibrate": True} if calibrate else {})
    estimator.check_parameters()  # before the data is read
    estimator.check_dependencies()
    check_model_output(out, force=force)
    check_recording(record)
    gc.disable()  # reading creates millions of strings, all of which are kept until training ends
    started = time.perf_counter()
    from carya.core.memory import limit_memory

    with limit_memory(context.params["memory"]):
        with (
            command_progress(quiet) as progress,
            progress.stage("read features") if data.contains_features() else nullcontext(),
        ):
            dataset = data.open()
        if recipe is not None:
            _check_recipe_data(recipe, estimator, dataset)
        if isinstance(dataset, Matrices):
            if unseen_labels:
                raise ParameterError(f"--unseen-labels applies to texts, but {dataset.source} contains features.")
            trained, result = _fit_matrices(context, estimator, dataset, label_files, engine)
        elif preset in _TRANSFORMER_PRESETS or model_name in _TRANSFORMERS:
            inputs = engine | _vocabulary_of(dataset, unseen_labels)
            trained, result = _fit_transformer(estimator, dataset, inputs, quiet=quiet)
        else:
            inputs = label_files.of_texts(data.label_separator) | engine | _vocabulary_of(dataset, unseen_labels)
            trained, result = _fit_text_ranker(estimator, dataset, inputs)
        fit_seconds = time.perf_counter() - started
        set_in_all(trained, verbose=False)  # the saved model does not show progress
        _warn_about_unique_labels(trained)
        trained.data_options_ = data.to_store(dataset)
        trained.save(out)
    result |= {
        "model": str(out),
        "bytes": size_on_disk(out),
        "seconds": round(time.perf_counter() - started, 3),
        "fit_seconds": round(fit_seconds, 3),
    }
    save_training_record(record, result)
    if as_json:
        click.echo(json.dumps(result, indent=1))
        return
    click.echo(
        f"{out}: {result['rows']:,} rows, {result['features']:,} features, {result['labels']:,} labels; "
        f"{result['bytes'] / 1e6:.1f} MB, {result['seconds']:.1f} s"
    )


def _build_estimator(
    context: click.Context,
    model_name: str,
    preset: str | None,
    trees: int | None,
    encoders: str | None,
    recipe: Path | None,
    *,
    verbose: bool,
) -> Any:
    """Return the unfitted model that the options describe."""
    if recipe is not None:
        _check_recipe_options(context)
        return _build_from_recipe(context, recipe, verbose=verbose)
    if preset in _TRANSFORMER_PRESETS:
        return _build_transformer_ensemble(context, model_name, str(preset), trees, encoders, verbose=verbose)
    if encoders is not None:
        raise ParameterError(f"--encoders requires --preset {' or '.join(_TRANSFORMER_PRESETS)}.")
    if model_name in _TRANSFORMERS:
        return _build_transformer(context, model_name, preset, trees, verbose=verbose)
    for name in given_parameters(context, _transformer_parameters()):
        if name not in tree_parameters(context):
            raise ParameterError(f"{flag(name)} requires --model {' or '.join(_TRANSFORMERS)}.")
    return build_text_ranker(context, preset, trees, verbose=verbose)


def _check_recipe_options(context: click.Context) -> None:
    """Raise ParameterError if an option was passed that would change the settings of a recipe."""
    others = ["model_name", "preset", "trees", "encoders"]
    given = [name for name in others if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    given += [name for name in tree_parameters(context) if name not in _MACHINE_PARAMETERS]
    given += [name for name in given_parameters(context, _transformer_parameters()) if name not in _MACHINE_PARAMETERS]
    if given:
        name = flag(given[0].removesuffix("_name"))
        raise ParameterError(f"{name} cannot be combined with --recipe, which contains all settings of the model.")


def _build_from_recipe(context: click.Context, recipe: Path, *, verbose: bool) -> Any:
    """Return the unfitted text ranker that a recipe describes."""
    from carya.models.interface import Model
    from carya.text.text_ranker import TextRanker
    from carya.tuning.recipe import Recipe

    machine = {name: value for name, value in tree_parameters(context).items() if name in _MACHINE_PARAMETERS}
    estimator = Recipe.load(recipe).build(verbose=verbose, **machine)
    return TextRanker(model=estimator) if isinstance(estimator, Model) else estimator


def _check_recipe_data(recipe: Path, ranker: Any, dataset: Corpus | Matrices) -> None:
    """Raise ParameterError if a recipe for texts is used for features, or vice versa."""
    from carya.data.corpus import Corpus

    has_texts = isinstance(dataset, Corpus)
    if has_texts != (ranker.vectorizer is not None):
        needed, found = ("features", "texts") if has_texts else ("texts", "features")
        raise ParameterError(f"{recipe} is a recipe for {needed}, but {dataset.source} contains {found}.")


def _build_transformer(
    context: click.Context, model_name: str, preset: str | None, trees: int | None, *, verbose: bool
) -> Any:
    """Return an unfitted transformer model."""
    import carya

    for name, value in (("--preset", preset), ("--trees", trees)):
        if value is not None:
            raise ParameterError(f"{name} requires --model xr-linear, got --model {model_name}.")
    return getattr(carya, _TRANSFORMERS[model_name])(**_given_transformer_parameters(context, verbose=verbose))


def _build_transformer_ensemble(
    context: click.Context, model_name: str, preset: str, trees: int | None, encoders: str | None, *, verbose: bool
) -> Any:
    """Return an unfitted ensemble of transformer models."""
    import carya

    if context.get_parameter_source("model_name") is ParameterSource.COMMANDLINE and model_name != preset:
        raise ParameterError(f"--preset {preset} requires --model {preset}, or no --model, got --model {model_name}.")
    parameters = _given_transformer_parameters(context, verbose=verbose)
    if "encoder" in parameters:
        raise ParameterError(f"--preset {preset} is an ensemble. Pass its encoders with --encoders, not --encoder.")
    names = None if encoders is None else [name.strip() for name in encoders.split(",")]
    if names is not None and not all(names):
        raise ParameterError(f"--encoders must be a list of names separated by commas, got {encoders!r}.")
    options = {} if trees is None else {"n_trees": trees}
    return getattr(carya, _TRANSFORMERS[preset]).recipe(names, **options, **parameters)


def _given_transformer_parameters(context: click.Context, *, verbose: bool) -> dict[str, Any]:
    """Return the parameters of a transformer model, with its vectorizer and ranker, from the command-line options."""
    import carya

    linear = given_parameters(context, carya.XRLinear)
    linear.pop("checkpoint_dir", None)  # the folder belongs to the transformer model, not to its ranker
    return {
        "vectorizer": carya.Tfidf(**given_parameters(context, carya.Tfidf)),
        "ranker": carya.XRLinear(**linear),
        "verbose": verbose,
        **given_parameters(context, _transformer_parameters()),
    }


def _make_engine(context: click.Context, estimator: Any, ray: str | None) -> dict[str, Any]:
    """Return the `engine` argument of `fit` if --ray is passed; raise ParameterError if the model cannot use it."""
    from carya.text.text_ranker import TextRanker

    if ray is None:
        return {}
    is_transformer = type(estimator).__name__ in _TRANSFORMERS.values()
    has_trees = isinstance(estimator, TextRanker) and getattr(estimator.model, "uses_engine", False)
    if not is_transformer and not has_trees:
        raise ParameterError("--ray requires a model with label trees, such as --model xr-linear.")
    if context.params["checkpoint_dir"] is None:
        raise ParameterError("--ray requires --checkpoint, a folder that all machines share.")
    from carya.cluster.ray_engine import RayEngine

    engine = RayEngine(ray)
    engine.check_dependencies()
    return {"engine": engine}


def _fit_text_ranker(ranker: Any, corpus: Corpus, inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    texts, labels = _stream(corpus)
    names = _label_names(corpus)
    if ranker.model.needs_label_features and "label_texts" not in inputs and "tree" not in inputs:
        if names is None:
            raise InputError(
                "The selected --representation requires label names or descriptions. Pass --vocabulary or "
                "--label-features."
            )
        inputs = inputs | {"label_texts": names}
    ranker.fit(texts, labels, names=names, **inputs)
    return ranker, {
        "kind": "text-ranker",
        "rows": ranker.label_set_.n_texts,
        "features": ranker.vectorizer_.n_features_,
        "labels": len(ranker.labels_),
    }


def _vocabulary_of(corpus: Corpus, unseen_labels: bool) -> dict[str, Any]:
    """Return the argument `vocabulary` of `fit` if labels without training texts are ranked."""
    if not unseen_labels:
        return {}
    assert corpus.vocabulary is not None  # --unseen-labels requires --vocabulary
    return {"vocabulary": corpus.vocabulary.ids}


def _fit_transformer(model: Any, corpus: Corpus, inputs: dict[str, Any], *, quiet: bool) -> tuple[Any, dict[str, Any]]:
    from carya.models.registry import kind_of

    with command_progress(quiet) as progress, progress.stage("read texts") as report:
        texts, labels = texts_and_labels(counted(corpus, report))
    names = _label_names(corpus)
    model.fit(texts, labels, names=names, label_texts=names, **inputs)
    result = {
        "kind": kind_of(model),
        "rows": len(texts),
        "features": model.vectorizers_[0].n_features_,
        "labels": len(model.labels_),
    }
    members = getattr(model, "members_", None)
    weights = {"mixture": model.weights_} if members is None else {"members": len(members)}
    return model, result | weights


def _fit_matrices(
    context: click.Context, estimator: Any, matrices: Matrices, label_files: LabelFiles, engine: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Train the model of a text ranker on features."""
    from carya.models.registry import kind_of
    from carya.models.xr_linear.model import XRLinear
    from carya.text.text_ranker import TextRanker
    from carya.text.tfidf import Tfidf

    if not isinstance(estimator, TextRanker):
        raise ParameterError(f"{type(estimator).__name__} requires texts, but {matrices.source} contains features.")
    for name in given_parameters(context, Tfidf):
        if name not in XRLinear.parameter_names():
            raise ParameterError(f"{flag(name)} applies to texts, but {matrices.source} contains features.")
    model: Any = estimator.model
    inputs = label_files.of_features()
    tree = inputs.pop("tree", None)
    if isinstance(model, XRLinear):
        model.set_params(tree=tree)
    elif tree is not None:
        inputs["tree"] = tree
    unused = [flag(name) for name in inputs if not getattr(model, f"uses_{name}", False)]
    if unused:
        raise ParameterError(f"{unused[0]} is not used by {model!r}. Omit it.")
    model.fit(matrices, **inputs, **engine)
    return model, {
        "kind": kind_of(model),
        "rows": matrices.Y.shape[0],
        "features": sum(model.widths_),
        "labels": model.n_labels_,
    }


def _stream(corpus: Corpus) -> tuple[Iterator[str], list[tuple[str, ...]] | LabelRows]:
    """Return an iterator over the texts, and the labels.

    The texts are read while their terms are counted; the labels are complete only after all texts have been read.
    """
    if corpus.matrix is not None and corpus.vocabulary is not None:
        from carya.text.labels import LabelRows

        return corpus.texts(), LabelRows(corpus.matrix, corpus.vocabulary.ids)
    labels: list[tuple[str, ...]] = []

    def texts() -> Iterator[str]:
        for example in corpus:
            labels.append(example.labels)
            yield example.text
        if not labels:
            raise InputError(f"{corpus.source} contains no rows. At least one is required.")

    return texts(), labels


def _label_names(corpus: Corpus) -> dict[str, str] | None:
    """Return the label names, or None if they do not differ from the ids."""
    if corpus.vocabulary is None:
        return None
    names = dict(zip(corpus.vocabulary.ids, corpus.vocabulary.names, strict=True))
    return names if any(label != name for label, name in names.items()) else None


def _warn_about_unique_labels(model: Any) -> None:
    """Print a warning if most labels occur only once; the cause can be a wrong label separator."""
    counts = getattr(model, "label_counts_", None)
    if counts is None or counts.sum() < _MIN_LABELS_FOR_WARNING:
        return
    n_unique = int((counts == 1).sum())
    if n_unique > 0.5 * counts.sum():
        click.echo(
            f"carya: {n_unique:,} of {counts.size:,} labels occur only once, so little can be learned about them. If "
            "several labels are read as one, pass --label-separator.",
            err=True,
        )

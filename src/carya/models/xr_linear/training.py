"""Algorithm 2 of the paper: every layer is the matcher of the next.

A tree's training is a generator: it says which problems it needs solved next, is sent their layers, and ends with what
it made of them. So several trees can be trained side by side (:func:`train_together`), and what they wait for at the
same time is one pool of work.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from carya import _core, matching
from carya.core.matrices import Csr, Features
from carya.core.progress import Progress
from carya.matching import Costs, Negatives
from carya.ranking import Problem
from carya.trees.beam_search import Searcher
from carya.trees.label_tree import LabelTree
from carya.trees.layer import Layer
from carya.trees.transforms import Transform

if TYPE_CHECKING:
    from carya.models.xr_linear.model import XRLinear

T = TypeVar("T")
Training = Generator[list[Problem], list[Layer], T]


def train_together(trainings: Sequence[Training[T]], solve: Callable[[list[Problem]], list[Layer]]) -> list[T]:
    """What some trainings make of the layers that `solve` finds, problems that are ready together in one call."""
    made: dict[int, T] = {}
    sent: dict[int, list[Layer] | None] = dict.fromkeys(range(len(trainings)))
    while sent:
        asked: dict[int, list[Problem]] = {}
        for at, layers in sent.items():
            try:
                asked[at] = next(trainings[at]) if layers is None else trainings[at].send(layers)
            except StopIteration as end:
                made[at] = end.value
        solved = solve([problem for problems in asked.values() for problem in problems]) if asked else []
        sent = {at: [solved.pop(0) for _ in problems] for at, problems in asked.items()}
    return [made[at] for at in range(len(trainings))]


def overlapping_layers(
    features: Features,
    labels: Csr,
    tree: LabelTree,
    *,
    copies: int,
    costs: Costs,
    negatives: Sequence[Negatives],
    given: Csr | None,
    transforms: Sequence[Transform],
    beam_width: int,
    seed: int,
    threads: int,
    progress: Progress,
) -> Training[tuple[LabelTree, list[Layer]]]:
    """The tree and its layers; with `copies`, labels get further leaves first, where a matcher brings their rows.

    That matcher is trained on the tree as it is. A tree whose clusters overlap already, or which has none, stays so.
    """

    def train(tree: LabelTree, labels: Csr, given: Csr | None, assigned: Csr | None = None) -> Training[list[Layer]]:
        return layers_of(
            features,
            labels,
            tree,
            assigned=assigned,
            costs=costs,
            negatives=negatives[: tree.depth],
            given=given,
            transforms=transforms[: tree.depth],
            beam_width=beam_width,
            seed=seed,
            threads=threads,
            progress=progress,
        )

    if copies > 1 and tree.depth > 1 and tree.leaf_labels is None:
        to, clusters = tree.parents[-1], tree.level_sizes[-2]
        matcher = yield from train(
            LabelTree(tree.parents[:-1]),
            labels.merge_columns(to, clusters),
            None if given is None else given.merge_columns(to, clusters),
        )
        with progress.stage("match for overlapping clusters") as report:
            matched = Searcher(matcher).shortlist(features, beam_width=beam_width, threads=threads, report=report)
        tree, assigned = matching.overlap(tree, labels, matched, copies=copies)
        return tree, (yield from train(tree, labels, given, assigned))
    return tree, (yield from train(tree, labels, given))


def layers_of(
    features: Features,
    labels: Csr,
    tree: LabelTree,
    *,
    costs: Costs,
    negatives: Sequence[Negatives],
    given: Csr | None,
    transforms: Sequence[Transform],
    beam_width: int,
    seed: int,
    threads: int,
    progress: Progress,
    assigned: Csr | None = None,
) -> Training[list[Layer]]:
    """The layers of a tree, from the root down.

    A layer with matcher negatives needs the layers above it trained; all others are asked for together, which keeps
    every thread busy while the few large problems near the root are solved.

    Parameters
    ----------
    negatives, transforms
        One for each layer.
    beam_width : int
        Of the matcher, whose clusters a row is a negative of.
    given : Csr, rows x labels, or None
        The user's shortlist, for negatives that ask for it.
    assigned : Csr, rows x leaves, or None
        Where clusters overlap, at which leaf each row is to find each of its labels; None is at all.
    """
    targets = matching.level_targets(labels, tree, costs=costs, assigned=assigned)
    given_targets = None if given is None else matching.level_targets(given, tree)
    layers: list[Layer] = []
    pending: list[Problem] = []

    for level in range(1, tree.depth + 1):
        wanted = negatives[level - 1]
        sources = []  # none at the root: its children are trained on all rows
        if level > 1 and "teacher" in wanted:
            sources.append(targets[level - 2])
        if level > 1 and "given" in wanted and given_targets is not None:
            sources.append(given_targets[level - 2])
        # A beam that holds every cluster makes every row a negative, which is no shortlist: the teacher's is better.
        tells_apart = not sources or tree.level_sizes[level - 1] > beam_width
        if level > 1 and "matcher" in wanted and tells_apart:
            if pending:
                layers += yield pending
                pending = []
            with progress.stage(f"match for layer {level}") as report:
                sources.append(
                    Searcher(layers).shortlist(features, beam_width=beam_width, threads=threads, report=report)
                )
        shortlist = matching.union(sources) if sources else None
        wanted_nodes = targets[level - 1]
        if level == tree.depth and assigned is not None and shortlist is not None:
            wanted_nodes = matching.within(wanted_nodes, tree.parents[-1], shortlist)
        order, chunks = tree.children(level)
        pending.append(
            Problem(
                level=level,
                seed=seed,
                targets=wanted_nodes,
                shortlist=None if shortlist is None else shortlist.transpose(),
                order=order,
                chunks=chunks,
                transform=transforms[level - 1],
            )
        )
    return layers + (yield pending)


def fit_together(models: Sequence[XRLinear], features: Features, labels: Csr, **about: Any) -> None:
    """Train trees on the same rows, side by side; `rankers`, `n_jobs` and `verbose` of all must be equal.

    `about` is what :meth:`XRLinear.training` takes besides.
    """
    for model in models:
        model.check_parameters()
    first = models[0]
    rankers, threads = first.rankers(), _core.thread_count(first.n_jobs)
    trees = "" if len(models) == 1 else f", {len(models)} trees"
    with first._progress() as progress:

        def solve(problems: list[Problem]) -> list[Layer]:
            levels = sorted({problem.level for problem in problems})
            which = f"layer {levels[0]}" if len(levels) == 1 else f"layers {levels[0]}–{levels[-1]}"
            with progress.stage(f"train {which}{trees}") as report:
                return rankers.train(features, problems, threads=threads, report=report)

        trainings = [model.training(features, labels, progress=progress, **about) for model in models]
        for model, learned in zip(models, train_together(trainings, solve), strict=True):
            model._set_learned(learned)

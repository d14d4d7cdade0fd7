"""Algorithm 2 of the paper: every layer is the matcher of the next."""

from __future__ import annotations

from collections.abc import Sequence

from carya import matching
from carya.layer import Layer, Transform
from carya.matching import Costs, Negatives
from carya.matrices import Csr, Features
from carya.progress import Progress
from carya.ranking import LinearRanker, Problem
from carya.search import Searcher
from carya.tree import LabelTree


def train_overlapping(
    features: Features,
    labels: Csr,
    tree: LabelTree,
    ranker: LinearRanker,
    *,
    copies: int,
    costs: Costs,
    negatives: Sequence[Negatives],
    given: Csr | None,
    transforms: Sequence[Transform],
    beam_width: int,
    threads: int,
    progress: Progress,
) -> tuple[LabelTree, list[Layer]]:
    """The same after labels were given further leaves, where a matcher trained on the tree as it is brings their rows.

    A tree whose clusters overlap already, or which has none, stays as it is.
    """

    def train(tree: LabelTree, labels: Csr, given: Csr | None, assigned: Csr | None = None) -> list[Layer]:
        return train_layers(
            features,
            labels,
            tree,
            ranker,
            assigned=assigned,
            costs=costs,
            negatives=negatives[: tree.depth],
            given=given,
            transforms=transforms[: tree.depth],
            beam_width=beam_width,
            threads=threads,
            progress=progress,
        )

    if copies > 1 and tree.depth > 1 and tree.leaf_labels is None:
        to, clusters = tree.parents[-1], tree.level_sizes[-2]
        matcher = train(
            LabelTree(tree.parents[:-1]),
            labels.merge_columns(to, clusters),
            None if given is None else given.merge_columns(to, clusters),
        )
        with progress.stage("match for overlapping clusters") as report:
            matched = Searcher(matcher).shortlist(features, beam_width=beam_width, threads=threads, report=report)
        tree, assigned = matching.overlap(tree, labels, matched, copies=copies)
        return tree, train(tree, labels, given, assigned)
    return tree, train(tree, labels, given)


def train_layers(
    features: Features,
    labels: Csr,
    tree: LabelTree,
    ranker: LinearRanker,
    *,
    costs: Costs,
    negatives: Sequence[Negatives],
    given: Csr | None,
    transforms: Sequence[Transform],
    beam_width: int,
    threads: int,
    progress: Progress,
    assigned: Csr | None = None,
) -> list[Layer]:
    """The layers of a tree, from the root down.

    A layer with matcher negatives needs the layers above it trained; all others are trained together, as one pool of
    work, which keeps every thread busy while the few large problems near the root are solved.

    Parameters
    ----------
    negatives, transforms
        One for each layer.
    given : Csr, rows x labels, or None
        The user's shortlist, for negatives that ask for it.
    assigned : Csr, rows x leaves, or None
        Where clusters overlap, at which leaf each row is to find each of its labels; None is at all.
    """
    targets = matching.level_targets(labels, tree, costs=costs, assigned=assigned)
    given_targets = None if given is None else matching.level_targets(given, tree)
    layers: list[Layer] = []
    pending: list[Problem] = []

    def train_pending() -> None:
        first, last = len(layers) + 1, len(layers) + len(pending)
        which = f"layer {first}" if first == last else f"layers {first}–{last}"
        with progress.stage(f"train {which} of {tree.depth}") as report:
            layers.extend(ranker.train(features, pending, threads=threads, report=report))
        pending.clear()

    def match(level: int) -> Csr:
        if pending:
            train_pending()
        with progress.stage(f"match for layer {level}") as report:
            return Searcher(layers).shortlist(features, beam_width=beam_width, threads=threads, report=report)

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
            sources.append(match(level))
        shortlist = matching.union(sources) if sources else None
        wanted_nodes = targets[level - 1]
        if level == tree.depth and assigned is not None and shortlist is not None:
            wanted_nodes = matching.within(wanted_nodes, tree.parents[-1], shortlist)
        order, chunks = tree.children(level)
        pending.append(
            Problem(
                level=level,
                targets=wanted_nodes,
                shortlist=None if shortlist is None else shortlist.transpose(),
                order=order,
                chunks=chunks,
                transform=transforms[level - 1],
            )
        )
    train_pending()
    return layers

// What a model is, in plain words, and what of it cannot be looked at.

const WORDS = {
  NearestNeighbours: "This model ranks by nearest neighbours.",
  Ensemble: "This model joins several others.",
  Reranked: "This model has a second ranker, which orders what others find.",
};

/** The tree of a model that is looked at; undefined if it has none. */
export const treeOf = (model, number) => model.trees[Math.min(Number(number) || 0, model.trees.length - 1)];

const nameOf = (model, tree) => `tree ${model.trees.indexOf(tree) + 1} of ${model.trees.length}`;

/** Why there is no tree to look at. */
export const noTree = (model) => `${WORDS[model.kind] ?? `This model is of kind ${model.kind}.`} It has no label tree`;

/** Why words cannot be shown; nothing if they can. */
export function noWords(model, tree) {
  if (!tree) return `${noTree(model)}, so it cannot tell which words spoke for a label.`;
  if (!tree.explains) return "The levels of this model's tree join their scores in different ways, so there is nothing that words would add up to.";
  return undefined;
}

/** What a tree is to its model; nothing if it is all of it. */
export function partOf(model, tree) {
  if (model.kind === "XRLinear" || !tree) return undefined;
  if (model.kind === "Reranked") return `Shown is ${nameOf(model, tree)}, with the scores it gives by itself. It finds labels for a second ranker, which gives the scores in the list and does not say why.`;
  return `Shown is ${nameOf(model, tree)}, with the scores it gives by itself. Those in the list are of all members together.`;
}

export const optionsOf = (model) => model.trees.map((tree) => nameOf(model, tree));

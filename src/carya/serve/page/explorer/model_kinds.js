// Notes about model kinds: which tree is shown, and why some views are unavailable.

const DESCRIPTIONS = {
  NearestNeighbors: "This model ranks labels by nearest neighbors.",
  Ensemble: "This model is an ensemble.",
  Reranked: "This model reranks candidates from other models.",
  TextEnsemble: "This model is an ensemble.",
  TextReranker: "This model reranks candidates from other models.",
  XRTransformer: "This model ranks labels with an encoder.",
  XTransformer: "This model ranks labels with an encoder.",
};

/** Return the selected tree of a model, or undefined if it has none. */
export const selectTree = (model, number) => model.trees[Math.min(Number(number) || 0, model.trees.length - 1)];

const treePosition = (model, tree) => `${model.trees.indexOf(tree) + 1} of ${model.trees.length}`;

export const treeNames = (model) => model.trees.map((tree) => treePosition(model, tree));

/** Return a note that a model has no label tree, followed by the consequence. */
export const noTreeNote = (model, consequence) => `${DESCRIPTIONS[model.kind] ?? `This is a model of class ${model.kind}.`} It has no label tree, so ${consequence}.`;

/** Return a note about why scores cannot be explained, or undefined if they can. */
export function noExplanationNote(model, tree) {
  if (!tree) return noTreeNote(model, "its scores cannot be explained");
  if (!tree.is_explainable) return "The levels of this tree use different kinds of transforms, so its scores cannot be divided among terms.";
  return undefined;
}

/** Return a note about the role of a tree in a model, or undefined if the tree is the whole model. */
export function treeNote(model, tree) {
  if (model.kind === "XRLinear" || !tree) return undefined;
  const shown = `This section shows tree ${treePosition(model, tree)}, which has its own scores.`;
  if (model.kind === "XRTransformer" || model.kind === "XTransformer") return `${shown} It ranks labels using only TF-IDF features. The list shows the combined scores of this tree and the encoder-based rankers. Combined scores cannot be explained.`;
  if (model.kind === "Reranked" || model.kind === "TextReranker") return `${shown} It provides candidates for the reranker. The list shows the reranker's scores, which cannot be explained.`;
  return `${shown} The list shows the combined scores of all members.`;
}

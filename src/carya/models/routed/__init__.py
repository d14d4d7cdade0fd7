"""Split XR-Linear models: the top of the tree, and several parts, each with the label rankers of some clusters."""

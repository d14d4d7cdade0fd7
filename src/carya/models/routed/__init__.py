"""XR-Linear models that are split into parts: the top of the tree, and the labels of some clusters per part."""

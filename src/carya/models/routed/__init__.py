"""Split XR-Linear models: the top of the tree, and several parts that contain the labels of some clusters each."""

"""XR-Linear: linear rankers at every level of a label tree."""

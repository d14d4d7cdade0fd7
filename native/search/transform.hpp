// Transforms, which combine the raw score h of a node with the score of its parent.
#pragma once

namespace carya {

struct Transform {
    enum Kind : int { noop, sigmoid, log_sigmoid, hinge, log_hinge };
    Kind kind = noop;
    float power = 3.0F;  // exponent p of the hinge transform exp(-max(0, 1 - h)^p)

    bool multiplies() const { return kind == sigmoid || kind == hinge; }
    bool adds() const { return kind == log_sigmoid || kind == log_hinge; }
};

}  // namespace carya

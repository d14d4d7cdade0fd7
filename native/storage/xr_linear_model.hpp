// Saved XR-Linear models, opened without Python for the C interface.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../search/beam_search.hpp"
#include "../search/tree_level.hpp"
#include "model_folder.hpp"

namespace carya {

class XRLinearModel {
public:
    // Throws FormatError if the folder does not contain a valid XR-Linear model.
    explicit XRLinearModel(const std::string& path);

    const BeamSearch& search() const { return *search_; }
    std::int64_t beam_width() const { return beam_width_; }

private:
    ModelFolder folder_;
    std::vector<TreeLevel> levels_;
    std::unique_ptr<BeamSearch> search_;
    std::int64_t beam_width_ = 10;
};

}  // namespace carya

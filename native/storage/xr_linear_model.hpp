// Reads the label tree of a saved model without Python, for the C interface.
#pragma once

#include <memory>
#include <vector>

#include "../search/beam_search.hpp"
#include "../search/tree_level.hpp"
#include "model_folder.hpp"

namespace carya {

class XRLinearModel {
public:
    // `parameters` contains the parameters of the XRLinear model. The folder must outlive this object. Throws
    // std::invalid_argument if the parts of the model are inconsistent.
    XRLinearModel(const ModelFolder& folder, const Json& parameters);

    const BeamSearch& search() const { return *search_; }
    std::int64_t beam_width() const { return beam_width_; }

private:
    std::vector<TreeLevel> levels_;
    std::unique_ptr<BeamSearch> search_;
    std::int64_t beam_width_ = 10;
};

}  // namespace carya

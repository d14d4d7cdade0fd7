// An XR-Linear model straight from its folder, for services without Python.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../beam.hpp"
#include "../tree.hpp"
#include "folder.hpp"

namespace carya {

class Model {
public:
    // Throws FormatError.
    explicit Model(const std::string& path);

    const BeamSearch& search() const { return *search_; }
    std::int64_t beam_width() const { return beam_width_; }

private:
    Folder folder_;
    std::vector<Children> levels_;
    std::unique_ptr<BeamSearch> search_;
    std::int64_t beam_width_ = 10;
};

}  // namespace carya

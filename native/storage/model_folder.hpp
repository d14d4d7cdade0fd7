// The folder of a saved model, with validation of its manifest and arrays. See docs/format.md for the format.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checksums.hpp"
#include "json.hpp"
#include "mapped_file.hpp"

namespace carya {

constexpr std::int64_t kFormat = 2;

struct StoredArray {
    std::string name;
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::span<const std::uint8_t> bytes;  // not verified; call checksums().verify before use
};

class ModelFolder {
public:
    // Opens a folder. If a save has just moved the folder aside in order to replace it, opens the moved folder (see
    // docs/format.md). Throws FormatError unless the manifest is valid and arrays.bin contains all arrays that the
    // manifest describes.
    explicit ModelFolder(const std::string& path);

    const std::string& path() const { return path_; }
    const std::string& manifest_text() const { return manifest_text_; }
    const Json& manifest() const { return manifest_; }
    const std::vector<StoredArray>& arrays() const { return arrays_; }
    const ChecksumVerifier& checksums() const { return *checksums_; }
    int descriptor() const { return folder_->descriptor(); }

private:
    void open(const std::string& path);
    void read_manifest();
    void map_arrays();
    StoredArray locate_array(const Json& description, std::int64_t& end) const;
    [[noreturn]] void fail(const std::string& problem) const { throw FormatError(path_ + ": " + problem + "."); }

    std::string path_;
    std::unique_ptr<OpenFolder> folder_;
    std::string manifest_text_;
    Json manifest_;
    std::unique_ptr<MappedFile> file_;
    std::vector<StoredArray> arrays_;
    std::unique_ptr<ChecksumVerifier> checksums_;
};

}  // namespace carya

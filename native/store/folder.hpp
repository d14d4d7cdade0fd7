// The folder of a saved model, opened and checked: its manifest and its arrays. docs/format.md is the specification.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "json.hpp"
#include "mapped_file.hpp"
#include "seal.hpp"

namespace carya {

constexpr std::int64_t kFormat = 2;

struct StoredArray {
    std::string name;
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::span<const std::uint8_t> bytes;  // not verified before Folder::seal() was asked for them
};

class Folder {
public:
    // Throws FormatError unless it is a whole model: a sound manifest, and a file that holds all it describes.
    explicit Folder(const std::string& path);

    const std::string& path() const { return path_; }
    const std::string& manifest_text() const { return text_; }
    const Json& manifest() const { return manifest_; }
    const std::vector<StoredArray>& arrays() const { return arrays_; }
    const Seal& seal() const { return *seal_; }

private:
    void read_manifest(const OpenFolder& folder);
    void map_arrays(const OpenFolder& folder);
    StoredArray place(const Json& described, std::int64_t& after) const;
    [[noreturn]] void refuse(const std::string& what) const { throw FormatError(path_ + ": " + what); }

    std::string path_;
    std::string text_;
    Json manifest_;
    std::unique_ptr<MappedFile> file_;
    std::vector<StoredArray> arrays_;
    std::unique_ptr<Seal> seal_;
};

}  // namespace carya

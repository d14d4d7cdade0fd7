#include "model_folder.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "../core/xxhash.hpp"

namespace carya {

namespace {

constexpr const char* kManifest = "manifest.json";
constexpr const char* kArrays = "arrays.bin";
constexpr std::size_t kMaxManifestBytes = 64 << 20;
constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kMaxArrayBytes = std::int64_t{1} << 56;
constexpr int kMaxAttempts = 100;                // to open a folder that is being replaced; one usually suffices
constexpr std::size_t kVerifyOnOpen = 64 << 20;  // files up to this size are verified when they are opened (takes 7 ms)

const std::map<std::string, std::int64_t> kItemBytes = {{"float32", 4}, {"int32", 4},  {"int64", 8},
                                                        {"uint8", 1},   {"uint16", 2}, {"uint64", 8}};

std::string to_hex(std::uint64_t x) {
    char out[17];
    std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(x));
    return out;
}

bool is_missing(const std::system_error& error) {
    return error.code() == std::errc::no_such_file_or_directory || error.code() == std::errc::not_a_directory;
}

// Returns the path to which a save moves the folder `path` if the file system cannot swap two folders: "a/.b.old" for
// "a/b". Returns an empty string if the path has no last component.
std::string replaced_path(const std::string& path) {
    const std::size_t end = path.find_last_not_of('/') + 1;
    const std::size_t slash = path.find_last_of('/', end == 0 ? 0 : end - 1);
    const std::size_t begin = slash == std::string::npos ? 0 : slash + 1;
    const std::string name = begin < end ? path.substr(begin, end - begin) : "";
    if (name.empty() || name == "." || name == "..") return "";
    return path.substr(0, begin) + "." + name + ".old";
}

std::uint64_t checksum(std::string_view text) {
    return xxh64(reinterpret_cast<const unsigned char*>(text.data()), text.size());
}

}  // namespace

ModelFolder::ModelFolder(const std::string& path) : path_(path) {
    if (path_.find('\0') != std::string::npos) throw FormatError("The path of a model must not contain null bytes.");
    const std::string replaced = replaced_path(path_);
    for (int attempt = 1;; ++attempt) {
        try {
            try {
                open(path_);
            } catch (const std::system_error& error) {
                if (!is_missing(error) || folder_ || replaced.empty()) throw;
                open(replaced);
            }
            return;
        } catch (const std::system_error& error) {
            // The file is missing if a save has just replaced the folder and removed the files of the old model. Try
            // again to open the new model.
            if (is_missing(error) && attempt < kMaxAttempts) continue;
            if (is_missing(error) && manifest_text_.empty())
                throw FormatError(path_ + " is not a Carya model: " + kManifest + " is missing.");
            fail((manifest_text_.empty() ? std::string(kManifest) : kArrays) +
                 " cannot be read: " + error.code().message());
        }
    }
}

void ModelFolder::open(const std::string& path) {
    folder_.reset();
    manifest_text_.clear();
    folder_ = std::make_unique<OpenFolder>(path);
    read_manifest();
    map_arrays();
}

void ModelFolder::read_manifest() {
    {
        const MappedFile file(*folder_, kManifest);
        if (file.bytes().size() > kMaxManifestBytes) fail(std::string(kManifest) + " is larger than 64 MiB");
        manifest_text_.assign(file.bytes().begin(), file.bytes().end());
    }
    try {
        manifest_ = Json::parse(manifest_text_);
    } catch (const std::invalid_argument& error) {
        fail(std::string(kManifest) + " is not valid JSON: " + error.what());
    }
    const Json* format = manifest_.find("format");
    if (!manifest_.is_object() || !format || !format->integer())
        fail(std::string(kManifest) + " is not the manifest of a Carya model");
    const std::int64_t version = *format->integer();
    if (version < 1) throw FormatError(path_ + " has format " + std::to_string(version) + ", which does not exist.");
    if (version > kFormat)
        throw FormatError(path_ + " has format " + std::to_string(version) +
                          ", but this version of Carya reads formats up to " + std::to_string(kFormat) +
                          ". Upgrade Carya.");
    if (version < kFormat)
        throw FormatError(
            path_ + " has format " + std::to_string(version) +
            ", which was never released. Train the model again with this version of Carya, which reads format " +
            std::to_string(kFormat) + ".");
    for (const char* key : {"kind", "parameters", "shape", "arrays", "checksums", "checksum"}) {
        const Json* value = manifest_.find(key);
        const bool is_text = std::string_view(key) == "kind" || std::string_view(key) == "checksum";
        const bool is_list = std::string_view(key) == "arrays";
        if (!value || !(is_text ? value->is_string() : is_list ? value->is_array() : value->is_object()))
            fail(std::string(kManifest) + " has no valid entry '" + key + "'");
    }
    // The checksum covers all bytes before its own line, which is the second-to-last line.
    const std::size_t last_entry = manifest_text_.rfind("\n \"checksum\": ") + 1;
    if (manifest_text_.substr(last_entry) !=
        " \"checksum\": \"" + to_hex(checksum({manifest_text_.data(), last_entry})) + "\"\n}\n")
        fail(std::string(kManifest) + " is damaged: its checksum does not match");
}

void ModelFolder::map_arrays() {
    file_ = std::make_unique<MappedFile>(*folder_, kArrays);
    arrays_.clear();
    std::int64_t end = 0;
    for (const Json& description : manifest_.find("arrays")->items()) arrays_.push_back(locate_array(description, end));
    const StoredArray sums = locate_array(*manifest_.find("checksums"), end);
    const auto size = static_cast<std::int64_t>(file_->bytes().size());
    if (end != size)
        fail(std::string(kArrays) + " has " + std::to_string(size) + " bytes, but the manifest describes " +
             std::to_string(end));
    const auto covered = static_cast<std::size_t>(sums.bytes.data() - file_->bytes().data());
    const Json* checksum_of_sums = manifest_.find("checksums")->find("checksum");
    if (sums.dtype != "uint64" || sums.bytes.size() != (covered + kChecksumBlock - 1) / kChecksumBlock * 8 ||
        !checksum_of_sums)
        fail(std::string(kManifest) + " has an invalid array description");
    if (checksum_of_sums->text() != to_hex(xxh64(sums.bytes.data(), sums.bytes.size())))
        fail(std::string(kArrays) + " is damaged: the checksum of its checksums does not match");
    checksums_ = std::make_unique<ChecksumVerifier>(
        file_->bytes().first(covered),
        std::span(reinterpret_cast<const std::uint64_t*>(sums.bytes.data()), sums.bytes.size() / 8),
        path_ + ": " + kArrays);
    if (covered <= kVerifyOnOpen) checksums_->verify(file_->bytes().data(), covered);
}

// Returns the array with this description. The array must not start before the end of the previous array, and it must
// end within the file.
StoredArray ModelFolder::locate_array(const Json& description, std::int64_t& end) const {
    const Json* name = description.find("name");
    const Json* dtype = description.find("dtype");
    const Json* shape = description.find("shape");
    const Json* offset = description.find("offset");
    if (!name || !name->text() || !dtype || !dtype->text() || !shape || !shape->is_array() || !offset ||
        !offset->integer())
        fail(std::string(kManifest) + " has an invalid array description");
    StoredArray out{*name->text(), *dtype->text(), {}, {}};
    const auto item = kItemBytes.find(out.dtype);
    std::int64_t size = item == kItemBytes.end() ? -1 : item->second;
    for (const Json& extent : shape->items()) {
        const std::int64_t length = extent.integer().value_or(-1);
        if (length < 0) size = -1;
        if (size < 0) break;
        if (__builtin_mul_overflow(size, length, &size)) size = kMaxArrayBytes;
        size = std::min(size, kMaxArrayBytes);
        out.shape.push_back(length);
    }
    if (size < 0) fail("array '" + out.name + "' has an unknown data type or an invalid shape");
    const std::int64_t begin = *offset->integer();
    const std::span<const std::uint8_t> file = file_->bytes();
    const auto file_size = static_cast<std::int64_t>(file.size());
    if (begin < end || begin % kAlignment != 0 || begin > file_size || size > file_size - begin)
        fail(std::string(kArrays) + " is truncated, or array '" + out.name + "' has an invalid offset or shape");
    out.bytes = file.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size));
    end = begin + size;
    return out;
}

}  // namespace carya

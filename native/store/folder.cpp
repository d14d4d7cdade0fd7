#include "folder.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "../checksum.hpp"

namespace carya {

namespace {

constexpr const char* kManifest = "manifest.json";
constexpr const char* kArrays = "arrays.bin";
constexpr std::size_t kMostManifestBytes = 64 << 20;
constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kMostSize = std::int64_t{1} << 56;
constexpr std::size_t kReadWhole = 64 << 20;  // files up to this size are verified when they are opened: 7 ms

const std::map<std::string, std::int64_t> kItemBytes = {{"float32", 4}, {"int32", 4},  {"int64", 8},
                                                        {"uint8", 1},   {"uint16", 2}, {"uint64", 8}};

std::string hexadecimal(std::uint64_t x) {
    char out[17];
    std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(x));
    return out;
}

std::uint64_t checksum(std::string_view text) {
    return xxh64(reinterpret_cast<const unsigned char*>(text.data()), text.size());
}

}  // namespace

Folder::Folder(const std::string& path) : path_(path) {
    for (bool again = true;; again = false) {
        try {
            const OpenFolder folder(path_);
            read_manifest(folder);
            map_arrays(folder);
            return;
        } catch (const std::system_error& error) {
            const bool missing =
                error.code() == std::errc::no_such_file_or_directory || error.code() == std::errc::not_a_directory;
            if (missing && again) continue;  // perhaps a new model has just taken its place
            if (missing && text_.empty()) throw FormatError(path_ + " is not a Carya model: it has no " + kManifest);
            refuse((text_.empty() ? std::string(kManifest) : kArrays) + " cannot be read: " + error.code().message());
        }
    }
}

void Folder::read_manifest(const OpenFolder& folder) {
    text_.clear();
    {
        const MappedFile file(folder, kManifest);
        if (file.bytes().size() > kMostManifestBytes) refuse(std::string(kManifest) + " is too large to be one");
        text_.assign(file.bytes().begin(), file.bytes().end());
    }
    try {
        manifest_ = Json::parse(text_);
    } catch (const std::invalid_argument& error) {
        refuse(std::string(kManifest) + " cannot be read: " + error.what());
    }
    const Json* format = manifest_.find("format");
    if (!manifest_.is_object() || !format || !format->integer())
        refuse(std::string(kManifest) + " is not that of a Carya model");
    const std::int64_t number = *format->integer();
    if (number < 1) throw FormatError(path_ + " has format " + std::to_string(number) + ", which never was one");
    if (number > kFormat)
        throw FormatError(path_ + " has format " + std::to_string(number) + ", this version of Carya reads up to " +
                          std::to_string(kFormat) + ": upgrade Carya");
    if (number < kFormat)
        throw FormatError(path_ + " has format " + std::to_string(number) +
                          ", of a version before the first release, and this version of Carya reads format " +
                          std::to_string(kFormat) + ": train the model again");
    for (const char* key : {"kind", "parameters", "shape", "arrays", "checksums", "checksum"}) {
        const Json* value = manifest_.find(key);
        const bool text = std::string_view(key) == "kind" || std::string_view(key) == "checksum";
        const bool list = std::string_view(key) == "arrays";
        if (!value || !(text ? value->is_string() : list ? value->is_array() : value->is_object()))
            refuse(std::string(kManifest) + " has no " + key);
    }
    // The checksum is that of all bytes before the line it stands in, the last but one.
    const std::size_t line = text_.rfind("\n \"checksum\": ") + 1;
    if (text_.substr(line) != " \"checksum\": \"" + hexadecimal(checksum({text_.data(), line})) + "\"\n}\n")
        refuse(std::string(kManifest) + " has been altered: its checksum does not match");
}

void Folder::map_arrays(const OpenFolder& folder) {
    file_ = std::make_unique<MappedFile>(folder, kArrays);
    arrays_.clear();
    std::int64_t after = 0;
    for (const Json& described : manifest_.find("arrays")->items()) arrays_.push_back(place(described, after));
    const StoredArray sums = place(*manifest_.find("checksums"), after);
    const auto size = static_cast<std::int64_t>(file_->bytes().size());
    if (after != size)
        refuse(std::string(kArrays) + " has " + std::to_string(size) + " bytes, the manifest describes " +
               std::to_string(after));
    const auto sealed = static_cast<std::size_t>(sums.bytes.data() - file_->bytes().data());
    const Json* seal = manifest_.find("checksums")->find("checksum");
    if (sums.dtype != "uint64" || sums.bytes.size() != (sealed + kSealedPiece - 1) / kSealedPiece * 8 || !seal)
        refuse(std::string(kManifest) + " describes an array badly");
    if (seal->text() != hexadecimal(xxh64(sums.bytes.data(), sums.bytes.size())))
        refuse(std::string(kArrays) + " has been altered: the checksum of its checksums does not match");
    seal_ = std::make_unique<Seal>(
        file_->bytes().first(sealed),
        std::span(reinterpret_cast<const std::uint64_t*>(sums.bytes.data()), sums.bytes.size() / 8),
        path_ + ": " + kArrays);
    if (sealed <= kReadWhole) seal_->need(file_->bytes().data(), sealed);
}

// An array must lie behind the last one, and inside the file.
StoredArray Folder::place(const Json& described, std::int64_t& after) const {
    const Json* name = described.find("name");
    const Json* dtype = described.find("dtype");
    const Json* shape = described.find("shape");
    const Json* offset = described.find("offset");
    if (!name || !name->text() || !dtype || !dtype->text() || !shape || !shape->is_array() || !offset ||
        !offset->integer())
        refuse(std::string(kManifest) + " describes an array badly");
    StoredArray out{*name->text(), *dtype->text(), {}, {}};
    const auto item = kItemBytes.find(out.dtype);
    std::int64_t size = item == kItemBytes.end() ? -1 : item->second;
    for (const Json& extent : shape->items()) {
        const std::int64_t length = extent.integer().value_or(-1);
        if (length < 0) size = -1;
        if (size < 0) break;
        if (__builtin_mul_overflow(size, length, &size)) size = kMostSize;
        size = std::min(size, kMostSize);
        out.shape.push_back(length);
    }
    if (size < 0) refuse("array '" + out.name + "' has an unknown type or shape");
    const std::int64_t begin = *offset->integer();
    const std::span<const std::uint8_t> file = file_->bytes();
    const auto whole = static_cast<std::int64_t>(file.size());
    if (begin < after || begin % kAlignment != 0 || begin > whole || size > whole - begin)
        refuse(std::string(kArrays) + " is cut short or array '" + out.name + "' lies outside it");
    out.bytes = file.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size));
    after = begin + size;
    return out;
}

}  // namespace carya

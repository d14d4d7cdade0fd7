// Fuzz target: saved models, opened and queried through the C interface.
//
// The input consists of the size of the manifest (4 bytes, little-endian), the manifest and arrays.bin. The harness
// replaces all checksums with the correct ones, so that damage is not already detected by them.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../../native/core/xxhash.hpp"
#include "../../native/include/carya.h"
#include "../../native/storage/checksums.hpp"
#include "../../native/storage/json.hpp"

namespace {

std::string hex_checksum(const void* bytes, std::size_t size) {
    char out[17];
    std::snprintf(out, sizeof out, "%016llx",
                  static_cast<unsigned long long>(carya::xxh64(static_cast<const unsigned char*>(bytes), size)));
    return out;
}

// Replaces the 16 digits of the first checksum after a position.
void replace_checksum(std::string& manifest, std::size_t from, const std::string& digits) {
    constexpr std::string_view kKey = "\"checksum\": \"";
    const std::size_t begin = manifest.find(kKey, from);
    if (begin != std::string::npos && manifest.size() - begin >= kKey.size() + digits.size())
        manifest.replace(begin + kKey.size(), digits.size(), digits);
}

// Stores the correct checksums of the blocks in `arrays`, if the manifest describes them.
void seal_arrays(std::string& manifest, std::string& arrays) {
    std::int64_t offset = -1;
    try {
        const carya::Json content = carya::Json::parse(manifest);
        const carya::Json* sums = content.find("checksums");
        const carya::Json* begin = sums ? sums->find("offset") : nullptr;
        if (begin) offset = begin->integer().value_or(-1);
    } catch (const std::invalid_argument&) {
    }
    if (offset < 0 || offset > static_cast<std::int64_t>(arrays.size())) return;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(arrays.data());
    const auto sums = carya::block_checksums({bytes, static_cast<std::size_t>(offset)});
    const std::size_t size = sums.size() * sizeof(std::uint64_t);
    if (arrays.size() - static_cast<std::size_t>(offset) < size) return;
    std::memcpy(arrays.data() + offset, sums.data(), size);
    replace_checksum(manifest, manifest.find("\"checksums\""), hex_checksum(arrays.data() + offset, size));
}

void seal_manifest(std::string& manifest) {
    const std::size_t last_entry = manifest.rfind("\n \"checksum\": ");
    if (last_entry == std::string::npos) return;
    manifest.resize(last_entry + 1);
    manifest += " \"checksum\": \"" + hex_checksum(manifest.data(), manifest.size()) + "\"\n}\n";
}

void write_file(const std::string& path, const std::string& content) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (!file || std::fwrite(content.data(), 1, content.size(), file) != content.size() || std::fclose(file) != 0)
        std::abort();
}

// A folder that is removed when the process exits.
class TemporaryFolder {
public:
    TemporaryFolder() : path_(access("/dev/shm", W_OK) == 0 ? "/dev/shm/carya-fuzz-XXXXXX" : "/tmp/carya-fuzz-XXXXXX") {
        if (!mkdtemp(path_.data())) std::abort();
    }
    ~TemporaryFolder() {
        std::remove((path_ + "/manifest.json").c_str());
        std::remove((path_ + "/arrays.bin").c_str());
        rmdir(path_.c_str());
    }
    TemporaryFolder(const TemporaryFolder&) = delete;

    const std::string& path() const { return path_; }

private:
    std::string path_;
};

const std::string& folder() {
    static const TemporaryFolder temporary;
    return temporary.path();
}

// Checks a ranking: labels exist and occur once, and scores are not NaN and never increase.
void check(const carya_model* model, const std::vector<carya_label>& best, std::int64_t count) {
    if (count < -1 || count > static_cast<std::int64_t>(best.size())) std::abort();
    for (std::int64_t i = 0; i < count; ++i) {
        if (best[i].label < 0 || best[i].label >= carya_labels(model) || std::isnan(best[i].score)) std::abort();
        if (i > 0 && best[i].score > best[i - 1].score) std::abort();
        for (const carya_string text : {carya_label_id(model, best[i].label), carya_label_name(model, best[i].label)}) {
            volatile char last = 0;
            for (std::int64_t c = 0; c < text.size; ++c) last = text.data[c];
            static_cast<void>(last);
        }
        carya_probability(model, best[i].score);
    }
}

void rank(const carya_model* model) {
    std::vector<carya_label> best(7);
    carya_options options = carya_defaults(model);
    options.beam_width = std::min<std::int64_t>(options.beam_width, 64);
    const auto top_k = static_cast<std::int64_t>(best.size());
    for (const std::string_view text : {"a red apple and 3 ripe pears", "\xE6\xA9\x9F\xE5\x99\xA8 \xCC\x81 \xFF a", ""})
        check(model, best, carya_rank_text(model, text.data(), text.size(), &options, best.data(), top_k));
    const std::int64_t n_features = std::min<std::int64_t>(carya_sparse_features(model), 4096);
    std::vector<std::int32_t> features;
    for (std::int64_t f = 0; f < n_features; f += 1 + f / 16) features.push_back(static_cast<std::int32_t>(f));
    const std::vector<float> values(features.size(), 0.5F);
    const std::vector<float> dense(std::min<std::int64_t>(carya_dense_features(model), 1 << 20), 0.25F);
    for (const std::size_t count : {features.size(), std::min<std::size_t>(features.size(), 1)})
        check(model, best,
              carya_rank(model, features.data(), values.data(), static_cast<std::int64_t>(count), dense.data(),
                         static_cast<std::int64_t>(dense.size()), &options, best.data(), top_k));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::uint32_t manifest_size = 0;
    if (size < sizeof manifest_size) return -1;
    std::memcpy(&manifest_size, data, sizeof manifest_size);
    data += sizeof manifest_size;
    size -= sizeof manifest_size;
    manifest_size = static_cast<std::uint32_t>(std::min<std::size_t>(manifest_size, size));
    std::string manifest(reinterpret_cast<const char*>(data), manifest_size);
    std::string arrays(reinterpret_cast<const char*>(data) + manifest_size, size - manifest_size);
    seal_arrays(manifest, arrays);
    seal_manifest(manifest);
    write_file(folder() + "/manifest.json", manifest);
    write_file(folder() + "/arrays.bin", arrays);
    carya_model* model = carya_open(folder().c_str());
    if (model) rank(model);
    if (!model && std::strlen(carya_error()) == 0) std::abort();
    carya_close(model);
    return 0;
}

// Fuzz target: the JSON reader for manifests.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "../../native/storage/json.hpp"

namespace {

// Reads every value below an element and returns the number of values.
std::size_t visit(const carya::Json& value) {
    std::size_t count = 1;
    for (const carya::Json& item : value.items()) count += visit(item);
    if (const auto text = value.text()) {
        if (!value.is_string()) std::abort();
        if (const carya::Json* member = value.find(*text)) count += visit(*member);
    }
    if (value.integer() && !value.number()) std::abort();
    if (value.boolean() && value.number()) std::abort();
    for (const char* name : {"", "a", "format", "shape", "arrays"})
        if (const carya::Json* member = value.find(name)) count += visit(*member);
    return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        visit(carya::Json::parse({reinterpret_cast<const char*>(data), size}));
    } catch (const std::invalid_argument&) {
    }
    return 0;
}

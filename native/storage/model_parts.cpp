#include "model_parts.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace carya {

void fail_inconsistent(const std::string& problem) {
    throw std::invalid_argument("The parts of the model are inconsistent: " + problem + ".");
}

const Json& member(const Json& object, const char* name) {
    const Json* value = object.find(name);
    if (!value) fail_inconsistent(std::string(name) + " is missing");
    return *value;
}

std::int64_t size_of(const Json& object, const char* name) {
    const std::int64_t size = member(object, name).integer().value_or(-1);
    if (size < 0 || size > std::numeric_limits<std::int32_t>::max())
        fail_inconsistent(std::string(name) + " is not a valid size");
    return size;
}

bool ArrayReader::has(const std::string& name) const {
    return std::any_of(folder_.arrays().begin(), folder_.arrays().end(),
                       [&](const StoredArray& array) { return array.name == name; });
}

const StoredArray& ArrayReader::find(const std::string& name) const {
    for (const StoredArray& array : folder_.arrays())
        if (array.name == name) return array;
    fail_inconsistent("array " + name + " is missing");
}

}  // namespace carya

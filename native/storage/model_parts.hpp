// Typed access to the parts of a saved model: manifest entries and arrays.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "model_folder.hpp"

namespace carya {

// Throws std::invalid_argument with a message that describes the inconsistency.
[[noreturn]] void fail_inconsistent(const std::string& problem);

// Returns a member of a JSON object. Throws std::invalid_argument if it is missing.
const Json& member(const Json& object, const char* name);

// Returns a member that is an integer between 0 and 2^31 - 1. Throws std::invalid_argument for other values.
std::int64_t size_of(const Json& object, const char* name);

class ArrayReader {
public:
    explicit ArrayReader(const ModelFolder& folder) : folder_(folder) {}

    bool has(const std::string& name) const;

    // Throws std::invalid_argument if the array does not exist.
    const StoredArray& find(const std::string& name) const;

    // Returns the values of an array. Throws std::invalid_argument if it has a different data type. `verify` is false
    // for arrays that are verified on first use.
    template <class T>
    std::span<const T> read(const std::string& name, const char* dtype, bool verify = true) const {
        const StoredArray& array = find(name);
        if (array.dtype != dtype) fail_inconsistent("array " + name + " has the unexpected data type " + array.dtype);
        if (verify) folder_.checksums().verify(array.bytes.data(), array.bytes.size());
        return {reinterpret_cast<const T*>(array.bytes.data()), array.bytes.size() / sizeof(T)};
    }

private:
    const ModelFolder& folder_;
};

}  // namespace carya

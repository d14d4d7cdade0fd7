// Selects the C++ types of ids, children and weights for the format of a packed layer.
#pragma once

#include <cstdint>

#include "packed_blocks.hpp"
#include "packed_weights.hpp"

namespace carya {
namespace {  // private to each file, because the kernels are compiled for several instruction sets

// Calls body.operator()<Id, Child>() with the types for the format.
template <class Body>
void dispatch_index_types(const PackedFormat& format, const Body& body) {
    const auto with_child_type = [&]<class Id>() {
        switch (format.child_bytes) {
            case 1: return body.template operator()<Id, std::uint8_t>();
            case 2: return body.template operator()<Id, std::uint16_t>();
            default: return body.template operator()<Id, std::uint32_t>();
        }
    };
    switch (format.id_bytes) {
        case 0: return with_child_type.template operator()<SingleChunk>();
        case 1: return with_child_type.template operator()<std::uint8_t>();
        case 2: return with_child_type.template operator()<std::uint16_t>();
        default: return with_child_type.template operator()<std::uint32_t>();
    }
}

// Calls body.operator()<BlockTypes<Id, Child, Weight>>() with the types for the format.
template <class Body>
void dispatch_format(const PackedFormat& format, const Body& body) {
    dispatch_index_types(format, [&]<class Id, class Child>() {
        switch (format.dtype) {
            case WeightDtype::float32: return body.template operator()<BlockTypes<Id, Child, float>>();
            case WeightDtype::float16: return body.template operator()<BlockTypes<Id, Child, Half>>();
            case WeightDtype::int8: return body.template operator()<BlockTypes<Id, Child, SignedSqrt>>();
        }
    });
}

}  // namespace
}  // namespace carya

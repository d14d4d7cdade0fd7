// From the sizes of a packed layer to the types of its parts.
#pragma once

#include <cstdint>

#include "blocks.hpp"
#include "packed.hpp"

namespace carya {
namespace {  // a copy for each file: the kernels compile theirs for other instruction sets

// Calls body.operator()<BlockTypes<Id, Child, Weight>>().
template <class Body>
void for_form(const PackedForm& form, const Body& body) {
    const auto with_weight = [&]<class Id, class Child>() {
        switch (form.precision) {
            case Precision::float32: return body.template operator()<BlockTypes<Id, Child, float>>();
            case Precision::float16: return body.template operator()<BlockTypes<Id, Child, Half>>();
            case Precision::int8: return body.template operator()<BlockTypes<Id, Child, Root>>();
        }
    };
    const auto with_child = [&]<class Id>() {
        switch (form.child_bytes) {
            case 1: return with_weight.template operator()<Id, std::uint8_t>();
            case 2: return with_weight.template operator()<Id, std::uint16_t>();
            default: return with_weight.template operator()<Id, std::uint32_t>();
        }
    };
    switch (form.id_bytes) {
        case 0: return with_child.template operator()<Only>();
        case 1: return with_child.template operator()<std::uint8_t>();
        case 2: return with_child.template operator()<std::uint16_t>();
        default: return with_child.template operator()<std::uint32_t>();
    }
}

}  // namespace
}  // namespace carya

// Conversion of weights to float32, float16 or int8 and back.
#pragma once

#include <cstdint>
#include <span>

#include "../core/raw_vector.hpp"

namespace carya {

enum class WeightDtype : int { float32, float16, int8 };

int weight_bytes(WeightDtype dtype);

// Encodes the weights of one chunk and returns their scale, which is 1 unless `dtype` is int8. With `scale` > 0, int8
// weights are encoded with this scale; by default, the scale is computed from the largest magnitude. Throws
// std::invalid_argument if a weight is NaN or infinite.
float encode_weights(std::span<const float> weights, WeightDtype dtype, float scale, RawVector<std::uint8_t>& out);

// Returns the value of a weight, without its scale.
float decode_weight(WeightDtype dtype, const std::uint8_t* bytes);

}  // namespace carya

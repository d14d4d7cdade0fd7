#include "quantization.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "../kernels/kernels.hpp"
#include "packed_blocks.hpp"

namespace carya {

namespace {

// Returns the scale for which the largest magnitude is encoded as 127, which represents 127 * 127 * scale.
float int8_scale(float largest) {
    return largest > 0.0F ? std::max(largest / (127.0F * 127.0F), std::numeric_limits<float>::min()) : 1.0F;
}

}  // namespace

int weight_bytes(WeightDtype dtype) {
    return dtype == WeightDtype::float32 ? 4 : dtype == WeightDtype::float16 ? 2 : 1;
}

float encode_weights(std::span<const float> weights, WeightDtype dtype, float scale, RawVector<std::uint8_t>& out) {
    float largest = 0.0F;
    bool finite = true;
    for (const float weight : weights) {
        largest = std::max(largest, std::fabs(weight));
        finite &= std::isfinite(weight);
    }
    if (!finite) throw std::invalid_argument("A weight is NaN or infinite.");
    out.resize(weights.size() * static_cast<std::size_t>(weight_bytes(dtype)));
    if (dtype == WeightDtype::int8) {
        if (!(scale > 0.0F)) scale = int8_scale(largest);
        kernels().encode_signed_roots(weights.data(), std::ssize(weights), scale,
                                      reinterpret_cast<std::int8_t*>(out.data()));
        return scale;
    }
    if (dtype == WeightDtype::float16) {
        for (std::size_t i = 0; i < weights.size(); ++i) {
            const std::uint16_t half = to_half(weights[i]);
            std::memcpy(out.data() + 2 * i, &half, 2);
        }
    } else if (!weights.empty()) {
        std::memcpy(out.data(), weights.data(), weights.size_bytes());
    }
    return 1.0F;
}

float decode_weight(WeightDtype dtype, const std::uint8_t* bytes) {
    switch (dtype) {
        case WeightDtype::float32: return load<float>(bytes);
        case WeightDtype::float16: return load<Half>(bytes);
        case WeightDtype::int8: break;
    }
    return load<SignedSqrt>(bytes);
}

}  // namespace carya

// Characters in pages of 128, as unicode_tables.cpp has them. Use the functions of unicode.hpp.
#pragma once

#include <cstdint>

namespace carya::unicode {

extern const std::uint8_t kFlagPage[8704];
extern const std::uint8_t kFlags[];
extern const std::uint8_t kLowerPage[8704];
extern const std::int32_t kLower[];  // what is added to a character to make it lower case
extern const std::uint8_t kFoldPage[8704];
extern const std::uint16_t kFold[];    // 0, or one more than a place in kFolded
extern const std::uint32_t kFolded[];  // how many characters, and then these

}  // namespace carya::unicode

// Parses floating-point numbers independently of the locale.
#pragma once

#include <charconv>
#include <concepts>

#ifndef __cpp_lib_to_chars
#include <locale>
#include <sstream>
#include <string>
#endif

namespace carya {

// Equivalent to std::from_chars for finite numbers. Some versions of libc++, including those on macOS, provide
// std::from_chars only for integers.
template <std::floating_point Number>
std::from_chars_result parse_float(const char* first, const char* last, Number& out) {
#ifdef __cpp_lib_to_chars
    return std::from_chars(first, last, out);
#else
    if (first == last || *first == '+' || *first == ' ') return {first, std::errc::invalid_argument};
    std::istringstream stream(std::string(first, last));
    stream.imbue(std::locale::classic());
    if (!(stream >> out)) return {first, std::errc::invalid_argument};
    return {stream.eof() ? last : first + static_cast<std::ptrdiff_t>(stream.tellg()), std::errc()};
#endif
}

}  // namespace carya

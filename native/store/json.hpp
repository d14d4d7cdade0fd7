// Just enough JSON to read the manifest of a saved model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace carya {

class Json {
public:
    // Throws std::invalid_argument for what is not JSON, or is nested deeper than any manifest.
    static Json parse(std::string_view text);

    bool is_object() const { return kind_ == Kind::object; }
    bool is_array() const { return kind_ == Kind::array; }
    bool is_string() const { return kind_ == Kind::string; }

    // The member of that name, or null. Of several the last counts.
    const Json* find(std::string_view name) const;
    const std::vector<Json>& items() const { return items_; }

    // A string without escapes, as all that matter to a reader are; none for other values.
    std::optional<std::string> text() const;
    // A whole number; none for other values.
    std::optional<std::int64_t> integer() const;

private:
    enum class Kind { null, boolean, number, string, array, object };
    friend class JsonParser;

    Kind kind_ = Kind::null;
    std::string text_;  // of a string between its quotes, or of a number
    std::vector<Json> items_;
    std::vector<std::pair<std::string, Json>> members_;
};

}  // namespace carya

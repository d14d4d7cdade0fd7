// A minimal JSON reader for the manifests of saved models.
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
    // Throws std::invalid_argument if the text is not valid JSON or is nested too deeply.
    static Json parse(std::string_view text);

    bool is_object() const { return kind_ == Kind::object; }
    bool is_array() const { return kind_ == Kind::array; }
    bool is_string() const { return kind_ == Kind::string; }

    // Returns the member with the given name, or null. If several members have this name, returns the last one.
    const Json* find(std::string_view name) const;
    const std::vector<Json>& items() const { return items_; }

    bool is_null() const { return kind_ == Kind::null; }

    // Returns the value in UTF-8 if it is a string without invalid escape sequences, otherwise nothing.
    std::optional<std::string> text() const;
    // Returns the value if it is a boolean, otherwise nothing.
    std::optional<bool> boolean() const;
    // Returns the value if it is an integer, otherwise nothing.
    std::optional<std::int64_t> integer() const;
    // Returns the value if it is a number, otherwise nothing.
    std::optional<double> number() const;

private:
    enum class Kind { null, boolean, number, string, array, object };
    friend class JsonParser;

    Kind kind_ = Kind::null;
    std::string text_;  // raw text of a string, number or boolean
    std::vector<Json> items_;
    std::vector<std::pair<std::string, Json>> members_;
};

}  // namespace carya

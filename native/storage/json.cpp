#include "json.hpp"

#include <charconv>
#include <cstring>
#include <stdexcept>

#include "../core/parse_float.hpp"
#include "../text/unicode/unicode.hpp"

namespace carya {

class JsonParser {
public:
    explicit JsonParser(std::string_view text) : text_(text) {}

    Json parse_document() {
        Json out = parse_value(0);
        skip_space();
        if (position_ != text_.size()) fail("unexpected text after the value");
        return out;
    }

private:
    static constexpr int kMaxDepth = 32;

    [[noreturn]] void fail(const char* problem) const {
        throw std::invalid_argument(std::string(problem) + " at byte " + std::to_string(position_));
    }

    void skip_space() {
        while (position_ < text_.size() && std::strchr(" \t\r\n", text_[position_]) && text_[position_] != 0)
            ++position_;
    }

    bool skip(char c) {
        skip_space();
        if (position_ >= text_.size() || text_[position_] != c) return false;
        ++position_;
        return true;
    }

    void expect_literal(std::string_view expected) {
        if (text_.substr(position_, expected.size()) != expected) fail("expected a value");
        position_ += expected.size();
    }

    Json parse_value(int depth) {
        if (depth > kMaxDepth) fail("values are nested too deeply");
        skip_space();
        if (position_ >= text_.size()) fail("unexpected end of text");
        Json out;
        switch (text_[position_]) {
            case '{': parse_object(out, depth); break;
            case '[': parse_array(out, depth); break;
            case '"':
                out.kind_ = Json::Kind::string;
                out.text_ = parse_string();
                break;
            case 't':
                out.kind_ = Json::Kind::boolean;
                out.text_ = "true";
                expect_literal("true");
                break;
            case 'f':
                out.kind_ = Json::Kind::boolean;
                out.text_ = "false";
                expect_literal("false");
                break;
            case 'n': expect_literal("null"); break;
            default: parse_number(out);
        }
        return out;
    }

    void parse_object(Json& out, int depth) {
        out.kind_ = Json::Kind::object;
        ++position_;
        if (skip('}')) return;
        do {
            skip_space();
            if (position_ >= text_.size() || text_[position_] != '"') fail("expected a member name");
            std::string name = parse_string();
            if (!skip(':')) fail("expected ':'");
            out.members_.emplace_back(std::move(name), parse_value(depth + 1));
        } while (skip(','));
        if (!skip('}')) fail("expected '}'");
    }

    void parse_array(Json& out, int depth) {
        out.kind_ = Json::Kind::array;
        ++position_;
        if (skip(']')) return;
        do out.items_.push_back(parse_value(depth + 1));
        while (skip(','));
        if (!skip(']')) fail("expected ']'");
    }

    std::string parse_string() {
        const std::size_t begin = ++position_;
        while (position_ < text_.size() && text_[position_] != '"') position_ += text_[position_] == '\\' ? 2 : 1;
        if (position_ >= text_.size()) fail("unterminated string");
        return std::string(text_.substr(begin, position_++ - begin));
    }

    void parse_number(Json& out) {
        const std::size_t begin = position_;
        while (position_ < text_.size() && text_[position_] != 0 &&
               std::strchr("+-.0123456789aefinntyINE", text_[position_]))
            ++position_;
        if (position_ == begin) fail("expected a value");
        out.kind_ = Json::Kind::number;
        out.text_ = std::string(text_.substr(begin, position_ - begin));
    }

    std::string_view text_;
    std::size_t position_ = 0;
};

Json Json::parse(std::string_view text) { return JsonParser(text).parse_document(); }

const Json* Json::find(std::string_view name) const {
    const Json* match = nullptr;
    for (const auto& [key, value] : members_)
        if (key == name) match = &value;
    return match;
}

namespace {

// Returns the four hexadecimal digits at a position, or nothing.
std::optional<std::uint32_t> hex_digits(std::string_view text, std::size_t position) {
    std::uint32_t out = 0;
    if (position + 4 > text.size()) return std::nullopt;
    const char* begin = text.data() + position;
    const auto [last, error] = std::from_chars(begin, begin + 4, out, 16);
    if (error != std::errc() || last != begin + 4) return std::nullopt;
    return out;
}

}  // namespace

std::optional<std::string> Json::text() const {
    if (kind_ != Kind::string) return std::nullopt;
    std::string out;
    for (std::size_t i = 0; i < text_.size(); ++i) {
        if (text_[i] != '\\') {
            out += text_[i];
            continue;
        }
        constexpr std::string_view kEscapes = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
        const char escape = ++i < text_.size() ? text_[i] : '\0';
        if (escape == 'u') {
            const auto unit = hex_digits(text_, i + 1);
            if (!unit) return std::nullopt;
            i += 4;
            std::uint32_t point = *unit;
            if (point >= 0xD800 && point < 0xDC00 && text_.compare(i + 1, 2, "\\u") == 0) {
                const auto low = hex_digits(text_, i + 3);
                if (!low || *low < 0xDC00 || *low >= 0xE000) return std::nullopt;
                point = 0x10000 + ((point - 0xD800) << 10) + (*low - 0xDC00);
                i += 6;
            }
            if (point >= 0xD800 && point < 0xE000) return std::nullopt;  // a lone surrogate
            char bytes[unicode::kMaxUtf8Bytes];
            out.append(bytes, unicode::encode(point, bytes));
        } else if (const std::size_t index = kEscapes.find(escape); index != std::string_view::npos) {
            out += kValues[index];
        } else {
            return std::nullopt;
        }
    }
    return out;
}

std::optional<bool> Json::boolean() const {
    if (kind_ != Kind::boolean) return std::nullopt;
    return text_ == "true";
}

std::optional<std::int64_t> Json::integer() const {
    if (kind_ != Kind::number) return std::nullopt;
    std::int64_t out = 0;
    const char* end = text_.data() + text_.size();
    const auto [last, error] = std::from_chars(text_.data(), end, out);
    if (error != std::errc() || last != end) return std::nullopt;
    return out;
}

std::optional<double> Json::number() const {
    if (kind_ != Kind::number) return std::nullopt;
    double out = 0.0;
    const char* end = text_.data() + text_.size();
    const auto [last, error] = parse_float(text_.data(), end, out);
    if (error != std::errc() || last != end) return std::nullopt;
    return out;
}

}  // namespace carya

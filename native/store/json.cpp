#include "json.hpp"

#include <charconv>
#include <cstring>
#include <stdexcept>

namespace carya {

class JsonParser {
public:
    explicit JsonParser(std::string_view text) : text_(text) {}

    Json whole() {
        Json out = value(0);
        space();
        if (at_ != text_.size()) fail("something follows the value");
        return out;
    }

private:
    static constexpr int kMostDepth = 32;

    [[noreturn]] void fail(const char* what) const {
        throw std::invalid_argument(std::string(what) + " at byte " + std::to_string(at_));
    }

    void space() {
        while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) && text_[at_] != 0) ++at_;
    }

    bool skip(char c) {
        space();
        if (at_ >= text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }

    void word(std::string_view expected) {
        if (text_.substr(at_, expected.size()) != expected) fail("there is no value");
        at_ += expected.size();
    }

    Json value(int depth) {
        if (depth > kMostDepth) fail("values are nested too deep");
        space();
        if (at_ >= text_.size()) fail("it ends too soon");
        Json out;
        switch (text_[at_]) {
            case '{': object(out, depth); break;
            case '[': array(out, depth); break;
            case '"':
                out.kind_ = Json::Kind::string;
                out.text_ = string();
                break;
            case 't':
                out.kind_ = Json::Kind::boolean;
                word("true");
                break;
            case 'f':
                out.kind_ = Json::Kind::boolean;
                word("false");
                break;
            case 'n': word("null"); break;
            default: number(out);
        }
        return out;
    }

    void object(Json& out, int depth) {
        out.kind_ = Json::Kind::object;
        ++at_;
        if (skip('}')) return;
        do {
            space();
            if (at_ >= text_.size() || text_[at_] != '"') fail("there is no name");
            std::string name = string();
            if (!skip(':')) fail("there is no colon");
            out.members_.emplace_back(std::move(name), value(depth + 1));
        } while (skip(','));
        if (!skip('}')) fail("there is no closing brace");
    }

    void array(Json& out, int depth) {
        out.kind_ = Json::Kind::array;
        ++at_;
        if (skip(']')) return;
        do out.items_.push_back(value(depth + 1));
        while (skip(','));
        if (!skip(']')) fail("there is no closing bracket");
    }

    std::string string() {
        const std::size_t begin = ++at_;
        while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
        if (at_ >= text_.size()) fail("a string does not end");
        return std::string(text_.substr(begin, at_++ - begin));
    }

    void number(Json& out) {
        const std::size_t begin = at_;
        while (at_ < text_.size() && text_[at_] != 0 && std::strchr("+-.0123456789aefinntyINE", text_[at_])) ++at_;
        if (at_ == begin) fail("there is no value");
        out.kind_ = Json::Kind::number;
        out.text_ = std::string(text_.substr(begin, at_ - begin));
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

Json Json::parse(std::string_view text) { return JsonParser(text).whole(); }

const Json* Json::find(std::string_view name) const {
    const Json* found = nullptr;
    for (const auto& [key, value] : members_)
        if (key == name) found = &value;
    return found;
}

std::optional<std::string> Json::text() const {
    if (kind_ != Kind::string || text_.find('\\') != std::string::npos) return std::nullopt;
    return text_;
}

std::optional<std::int64_t> Json::integer() const {
    if (kind_ != Kind::number) return std::nullopt;
    std::int64_t out = 0;
    const char* end = text_.data() + text_.size();
    const auto [last, error] = std::from_chars(text_.data(), end, out);
    if (error != std::errc() || last != end) return std::nullopt;
    return out;
}

}  // namespace carya

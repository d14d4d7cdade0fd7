// A growing table of words and their stems. A stemming library computes the stem of each distinct word only once.
#pragma once

#include <cstdint>
#include <functional>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace carya {

struct AnalyzerOptions;

// Words can be added while other threads read texts. A process can be forked at any time.
class StemTable {
public:
    StemTable();
    StemTable(const StemTable&) = delete;
    StemTable& operator=(const StemTable&) = delete;
    ~StemTable();

    // Returns the distinct words that occur in the texts but not in the table, in ascending order.
    std::vector<std::string> missing(std::span<const std::string_view> texts, const AnalyzerOptions& options,
                                     int threads) const;

    // Adds words that are not in the table. Throws std::invalid_argument unless there is one stem per word.
    void add(const std::vector<std::string>& words, const std::vector<std::string>& stems);

    std::size_t size() const;

    // Returns a lock that must be held while find() and its result are used.
    std::shared_lock<std::shared_mutex> lock() const { return std::shared_lock(mutex_); }

    // Returns the stem of a word, or nullptr if the word is not in the table.
    const std::string* find(std::string_view word) const {
        const auto entry = stems_.find(word);
        return entry == stems_.end() ? nullptr : &entry->second;
    }

private:
    friend class StemTables;

    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
    };
    std::unordered_map<std::string, std::string, Hash, std::equal_to<>> stems_;
    mutable std::shared_mutex mutex_;
};

}  // namespace carya

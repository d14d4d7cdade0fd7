#include "stem_table.hpp"

#include <algorithm>
#include <mutex>
#include <set>
#include <stdexcept>

#include "../core/parallel.hpp"
#include "tokenizer.hpp"

namespace carya {

std::vector<std::string> StemTable::missing(std::span<const std::string_view> texts, const AnalyzerOptions& options,
                                            int threads) const {
    AnalyzerOptions words = options;
    words.unit = TokenUnit::word;
    words.stems = nullptr;
    std::vector<Tokenizer> tokenizers(static_cast<std::size_t>(threads), Tokenizer(words));
    std::vector<std::set<std::string, std::less<>>> unknown(static_cast<std::size_t>(threads));
    const std::shared_lock<std::shared_mutex> held = lock();
    parallel_each(std::ssize(texts), kTextsPerTask, threads, nullptr, [&](int w, std::int64_t i) {
        tokenizers[w].read(texts[i], i);
        tokenizers[w].for_each_word([&](std::string_view word) {
            if (!find(word) && !unknown[w].contains(word)) unknown[w].emplace(word);
        });
    });
    for (int w = 1; w < threads; ++w) unknown[0].merge(unknown[w]);
    return {unknown[0].begin(), unknown[0].end()};
}

void StemTable::add(const std::vector<std::string>& words, const std::vector<std::string>& stems) {
    if (words.size() != stems.size()) throw std::invalid_argument("There must be one stem per word.");
    const std::unique_lock held(mutex_);
    for (std::size_t i = 0; i < words.size(); ++i) stems_.try_emplace(words[i], stems[i]);
}

std::size_t StemTable::size() const {
    const std::shared_lock<std::shared_mutex> held = lock();
    return stems_.size();
}

}  // namespace carya

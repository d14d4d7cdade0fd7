#include "stem_table.hpp"

#include <algorithm>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>

#ifndef _WIN32
#include <pthread.h>
#endif

#include "../core/parallel.hpp"
#include "tokenizer.hpp"

namespace carya {

// All tables. No thread uses a table while the process is forked, because the locks of the other threads would never be
// released in the child process.
class StemTables {
public:
    static StemTables& instance() {
        static StemTables* tables = create();  // never destroyed, because tables can exist while the process exits
        return *tables;
    }

    void add(StemTable* table) {
        const std::lock_guard held(mutex_);
        tables_.insert(table);
    }
    void remove(StemTable* table) {
        const std::lock_guard held(mutex_);
        tables_.erase(table);
    }

private:
    static StemTables* create() {
#ifndef _WIN32
        pthread_atfork([] { instance().before_fork(); }, [] { instance().after_fork_in_parent(); },
                       [] { instance().after_fork_in_child(); });
#endif
        return new StemTables;
    }

    void before_fork() {
        mutex_.lock();
        for (StemTable* table : tables_) table->mutex_.lock();
    }
    void after_fork_in_parent() {
        for (StemTable* table : tables_) table->mutex_.unlock();
        mutex_.unlock();
    }
    void after_fork_in_child() {
        for (StemTable* table : tables_) new (&table->mutex_) std::shared_mutex;  // owned by a thread of the parent
        mutex_.unlock();
    }

    std::mutex mutex_;
    std::set<StemTable*> tables_;
};

StemTable::StemTable() { StemTables::instance().add(this); }
StemTable::~StemTable() { StemTables::instance().remove(this); }

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

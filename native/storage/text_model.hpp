// Reads the vectorizer, the labels and the calibration of a saved text ranker without Python, for the C interface.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "../text/vectorizer.hpp"
#include "model_folder.hpp"

namespace carya {

class TextModel {
public:
    // The folder must outlive this object. Throws std::invalid_argument if the parts of the model are inconsistent
    // or if its parameters require Python.
    explicit TextModel(const ModelFolder& folder);

    const Vectorizer& vectorizer() const { return *vectorizer_; }
    std::int64_t n_labels() const { return ids_.size(); }
    std::string_view label_id(std::int64_t label) const { return ids_[label]; }
    std::string_view label_name(std::int64_t label) const { return names_[label]; }

    // Returns the calibrated probability for a score, or NaN if the model is not calibrated.
    double probability(double score) const;

private:
    // A saved list of strings.
    class Strings {
    public:
        Strings() = default;
        // Throws std::invalid_argument unless the end offsets are non-negative, never decrease and end at the number of
        // bytes.
        Strings(std::span<const std::uint8_t> bytes, std::span<const std::int64_t> ends);

        std::int64_t size() const { return static_cast<std::int64_t>(ends_.size()); }
        std::string_view operator[](std::int64_t i) const;

    private:
        std::span<const std::uint8_t> bytes_;
        std::span<const std::int64_t> ends_;
    };

    void open_vectorizer(const ModelFolder& folder, const Json& parameters);

    VocabularyArrays stop_words_;
    Vocabulary stop_word_set_;
    std::unique_ptr<Vectorizer> vectorizer_;
    Strings ids_;
    Strings names_;
    std::span<const float> scores_;
    std::span<const float> probabilities_;
};

}  // namespace carya

#include "split.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace carya {

namespace {

constexpr std::int64_t kMembersPerTask = 512;

// What a centre's sum is multiplied by to become a centre.
float centre_scale(const Centre& sum, std::int64_t members, bool spherical) {
    const double length = spherical ? std::sqrt(sum.squared_length()) : static_cast<double>(members);
    return length > 0.0 ? static_cast<float>(1.0 / length) : 0.0F;
}

}  // namespace

std::vector<std::uint8_t> split_in_two(const Group& group, double share, const SplitOptions& options, Random random,
                                       int threads, const std::atomic<bool>& stop) {
    const std::int64_t size = group.size();
    const auto first_size = std::clamp<std::int64_t>(std::llround(share * static_cast<double>(size)), 1, size - 1);
    const std::uint32_t one = random.below(static_cast<std::uint32_t>(size));
    std::uint32_t other = random.below(static_cast<std::uint32_t>(size - 1));
    other += other >= one;

    Centre sums[2] = {Centre(group), Centre(group)};
    std::int64_t counts[2] = {1, 1};
    sums[0].add(group, one, 1.0F);
    sums[1].add(group, other, 1.0F);
    Centre difference(group);
    std::vector<float> score(size);
    std::vector<std::int32_t> order(size);
    std::vector<std::uint8_t> side(size, 2);  // 2: not assigned yet
    std::vector<std::uint8_t> next(size);

    for (int iteration = 0; iteration < options.max_iter && !stop; ++iteration) {
        const float scale0 = centre_scale(sums[0], counts[0], options.spherical);
        const float scale1 = centre_scale(sums[1], counts[1], options.spherical);
        for (std::size_t f = 0; f < difference.sparse.size(); ++f)
            difference.sparse[f] = scale1 * sums[1].sparse[f] - scale0 * sums[0].sparse[f];
        for (std::size_t j = 0; j < difference.dense.size(); ++j)
            difference.dense[j] = scale1 * sums[1].dense[j] - scale0 * sums[0].dense[j];
        parallel_each(size, kMembersPerTask, threads, nullptr,
                      [&](int, std::int64_t m) { score[m] = similarity(group, m, difference); });

        bool by_score = options.balanced;
        if (!by_score) {  // to the nearer centre; two equal centres cannot tell, then by order as if balanced
            double middle = 0.0;
            if (!options.spherical)
                middle =
                    0.5 * (sums[1].squared_length() * scale1 * scale1 - sums[0].squared_length() * scale0 * scale0);
            std::int64_t ones = 0;
            for (std::int64_t m = 0; m < size; ++m) ones += next[m] = score[m] > static_cast<float>(middle);
            by_score = ones == 0 || ones == size;
        }
        if (by_score) {
            std::iota(order.begin(), order.end(), 0);
            std::nth_element(
                order.begin(), order.begin() + first_size, order.end(),
                [&](std::int32_t a, std::int32_t b) { return score[a] != score[b] ? score[a] < score[b] : a < b; });
            std::fill(next.begin(), next.end(), 1);
            for (std::int64_t i = 0; i < first_size; ++i) next[order[i]] = 0;
        }

        if (iteration == 0) {
            for (int s = 0; s < 2; ++s) {
                sums[s] = Centre(group);
                counts[s] = 0;
            }
        }
        parallel_for(2, threads, nullptr, [&](int, std::int64_t s) {
            for (std::int64_t m = 0; m < size; ++m) {
                if (side[m] == next[m] || (side[m] != s && next[m] != s)) continue;
                const int sign = next[m] == s ? 1 : -1;
                sums[s].add(group, m, static_cast<float>(sign));
                counts[s] += sign;
            }
        });
        std::int64_t moved = 0;
        for (std::int64_t m = 0; m < size; ++m) moved += side[m] != next[m];
        side = next;
        if (static_cast<double>(moved) <= options.min_moved * static_cast<double>(size)) break;
    }
    for (std::uint8_t& s : side) s &= 1;  // only where `stop` came before the first assignment
    return side;
}

namespace {

// Centres of many parts, feature by feature with the parts side by side, so that one entry serves all of them.
class Centres {
public:
    Centres(const Group& group, int parts)
        : group_(group), parts_(parts), sparse_(group.entries->width * parts), counts_(parts, 0), scale_(parts, 0.0F) {
        for (int part = 0; part < parts; ++part) dense_.emplace_back(group.dense.cols, 0.0F);
    }

    void clear() {
        std::fill(sparse_.begin(), sparse_.end(), 0.0F);
        std::fill(counts_.begin(), counts_.end(), 0);
        for (auto& dense : dense_) std::fill(dense.begin(), dense.end(), 0.0F);
    }

    void add(std::int64_t member, std::uint32_t part, int sign) {
        const auto scale = static_cast<float>(sign);
        const Entries& entries = *group_.entries;
        for (std::int64_t e = group_.rows[member].begin; e < group_.rows[member].end; ++e)
            sparse_[static_cast<std::size_t>(entries.columns[e]) * parts_ + part] += scale * entries.values[e];
        const float* x = group_.dense.row(group_.labels[member]);
        for (std::size_t j = 0; j < dense_[part].size(); ++j) dense_[part][j] += scale * x[j];
        counts_[part] += sign;
    }

    // After members have moved: the scale of each part, and what plain k-means subtracts for a centre's own length.
    void settle(bool spherical) {
        std::vector<double> squares(parts_, 0.0);
        for (std::size_t i = 0; i < sparse_.size(); ++i)
            squares[i % parts_] += static_cast<double>(sparse_[i]) * sparse_[i];
        penalty_.assign(parts_, 0.0F);
        for (int part = 0; part < parts_; ++part) {
            for (const float x : dense_[part]) squares[part] += static_cast<double>(x) * x;
            const double length = spherical ? std::sqrt(squares[part]) : static_cast<double>(counts_[part]);
            scale_[part] = length > 0.0 ? static_cast<float>(1.0 / length) : 0.0F;
            if (!spherical) penalty_[part] = static_cast<float>(0.5 * squares[part] * scale_[part] * scale_[part]);
        }
    }

    void score(std::int64_t member, float* out) const {
        std::fill_n(out, parts_, 0.0F);
        const Entries& entries = *group_.entries;
        for (std::int64_t e = group_.rows[member].begin; e < group_.rows[member].end; ++e) {
            const float* centre = sparse_.data() + static_cast<std::size_t>(entries.columns[e]) * parts_;
            const float value = entries.values[e];
            for (int part = 0; part < parts_; ++part) out[part] += value * centre[part];
        }
        const float* x = group_.dense.row(group_.labels[member]);
        for (int part = 0; part < parts_; ++part) {
            for (std::size_t j = 0; j < dense_[part].size(); ++j) out[part] += x[j] * dense_[part][j];
            out[part] = out[part] * scale_[part] - penalty_[part];
        }
    }

private:
    const Group& group_;
    const int parts_;
    std::vector<float> sparse_;
    std::vector<std::vector<float>> dense_;
    std::vector<std::int64_t> counts_;
    std::vector<float> scale_;
    std::vector<float> penalty_;
};

// Gives every member its best part that has room, those with most to lose by a second choice first.
void assign_balanced(const std::vector<float>& score, std::int64_t size, int parts, std::vector<std::uint32_t>& next) {
    std::vector<float> regret(size);
    for (std::int64_t m = 0; m < size; ++m) {
        float best = -INFINITY;
        float second = -INFINITY;
        for (int part = 0; part < parts; ++part) {
            const float s = score[m * parts + part];
            if (s > best) {
                second = best;
                best = s;
            } else if (s > second) {
                second = s;
            }
        }
        regret[m] = best - second;
    }
    std::vector<std::int32_t> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](std::int32_t a, std::int32_t b) { return regret[a] != regret[b] ? regret[a] > regret[b] : a < b; });
    const std::int64_t small = size / parts;
    std::int64_t large_left = size % parts;  // parts that hold one more
    std::vector<std::int64_t> filled(parts, 0);
    for (const std::int32_t m : order) {
        int choice = -1;
        for (int part = 0; part < parts; ++part) {
            const bool room = filled[part] < small || (filled[part] == small && large_left > 0);
            if (room && (choice < 0 || score[std::int64_t{m} * parts + part] > score[std::int64_t{m} * parts + choice]))
                choice = part;
        }
        if (filled[choice] == small) --large_left;
        ++filled[choice];
        next[m] = static_cast<std::uint32_t>(choice);
    }
}

}  // namespace

std::vector<std::uint32_t> split_in_many(const Group& group, int parts, const SplitOptions& options, Random random,
                                         int threads, const std::atomic<bool>& stop) {
    const std::int64_t size = group.size();
    std::vector<std::int32_t> seeds(size);
    std::iota(seeds.begin(), seeds.end(), 0);
    random.shuffle(seeds.data(), static_cast<std::uint32_t>(size));
    Centres centres(group, parts);
    for (int part = 0; part < parts; ++part) centres.add(seeds[part], static_cast<std::uint32_t>(part), 1);

    const auto none = static_cast<std::uint32_t>(parts);
    std::vector<std::uint32_t> side(size, none);
    std::vector<std::uint32_t> next(size);
    std::vector<float> score(size * parts);
    for (int iteration = 0; iteration < options.max_iter && !stop; ++iteration) {
        centres.settle(options.spherical);
        parallel_each(size, kMembersPerTask, threads, nullptr,
                      [&](int, std::int64_t m) { centres.score(m, score.data() + m * parts); });
        if (options.balanced) {
            assign_balanced(score, size, parts, next);
        } else {
            for (std::int64_t m = 0; m < size; ++m) {
                const float* s = score.data() + m * parts;
                next[m] = static_cast<std::uint32_t>(std::max_element(s, s + parts) - s);
            }
        }
        if (iteration == 0) centres.clear();
        std::int64_t moved = 0;
        for (std::int64_t m = 0; m < size; ++m) {
            if (side[m] == next[m]) continue;
            if (side[m] != none) centres.add(m, side[m], -1);
            centres.add(m, next[m], 1);
            ++moved;
        }
        side = next;
        if (static_cast<double>(moved) <= options.min_moved * static_cast<double>(size)) break;
    }
    for (std::uint32_t& s : side) s %= none;  // only where `stop` came before the first assignment
    // Labels that no centre can tell apart would stay in one part for ever: deal them out.
    if (!options.balanced && std::all_of(side.begin(), side.end(), [&](std::uint32_t s) { return s == side[0]; }))
        for (std::int64_t m = 0; m < size; ++m) side[m] = static_cast<std::uint32_t>(m * parts / size);
    return side;
}

}  // namespace carya

// The border between Python and the kernels: views in, owned arrays out. No logic lives here.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <utility>
#include <vector>

#include "../matrix.hpp"
#include "../parallel.hpp"
#include "../store/folder.hpp"

namespace carya::bind {

namespace nb = nanobind;

template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Table = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class T>
std::span<const T> span(const Array<T>& array) {
    return {array.data(), array.size()};
}

inline DenseView view(const Table<float>& table) {
    return {table.data(), static_cast<std::int64_t>(table.shape(0)), static_cast<std::int64_t>(table.shape(1))};
}

// Hands a vector's memory to NumPy without a copy.
template <class T, class... Shape>
nb::ndarray<nb::numpy, T> give(std::vector<T>&& items, Shape... shape) {
    auto owner = std::make_unique<std::vector<T>>(std::move(items));
    T* data = owner->data();
    const std::size_t size = owner->size();
    nb::capsule keeper(owner.release(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    if constexpr (sizeof...(Shape) == 0)
        return nb::ndarray<nb::numpy, T>(data, {size}, keeper);
    else
        return nb::ndarray<nb::numpy, T>(data, {static_cast<std::size_t>(shape)...}, keeper);
}

inline nb::tuple give(Csr&& csr) {
    return nb::make_tuple(give(std::move(csr.indptr)), give(std::move(csr.indices)), give(std::move(csr.values)));
}

// A matrix that Python has handed over, checked once, its arrays kept alive.
class CheckedCsr {
public:
    CheckedCsr(Array<std::int64_t> indptr, Array<std::int32_t> indices, Array<float> values, std::int64_t cols,
               const char* name, bool sorted)
        : indptr_(std::move(indptr)), indices_(std::move(indices)), values_(std::move(values)) {
        view = {span(indptr_), span(indices_), span(values_), cols};
        const nb::gil_scoped_release released;
        if (sorted)
            view.check(name);
        else
            view.check_structure(name);
    }

    CsrView view;

private:
    Array<std::int64_t> indptr_;
    Array<std::int32_t> indices_;
    Array<float> values_;
};

class CheckedFeatures {
public:
    CheckedFeatures(const CheckedCsr& sparse, Table<float> dense, const char* name)
        : sparse_(sparse), dense_(std::move(dense)) {
        view = {sparse_.view, bind::view(dense_)};
        const nb::gil_scoped_release released;
        view.check_dense(name);
    }

    Features view;

private:
    CheckedCsr sparse_;
    Table<float> dense_;
};

// Lets Python see the progress of a kernel, and Ctrl-C stop it.
class PythonMonitor final : public Monitor {
public:
    explicit PythonMonitor(nb::object report) : report_(std::move(report)) {}

    void tick() override {
        const nb::gil_scoped_acquire held;
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        if (!report_.is_none()) report_(done.load(), total);
    }

private:
    nb::object report_;
};

// A folder that Python has opened. What lies in it keeps it open, not the Python object.
struct OpenedFolder {
    std::shared_ptr<const Folder> folder;
};

void register_matrix(nb::module_& m);
void register_index(nb::module_& m);
void register_train(nb::module_& m);
void register_search(nb::module_& m);
void register_store(nb::module_& m);
void register_text(nb::module_& m);

}  // namespace carya::bind

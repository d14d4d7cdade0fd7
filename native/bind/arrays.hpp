// Converts between Python objects and native views. The bindings contain no logic.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "../core/matrix.hpp"
#include "../core/parallel.hpp"
#include "../storage/model_folder.hpp"
#include "gil.hpp"

namespace carya::bind {

namespace nb = nanobind;

template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class T>
bool is_aligned(const T* data) {
    return reinterpret_cast<std::uintptr_t>(data) % alignof(T) == 0;
}

template <class T>
const T* aligned_data(const T* data) {
    if (!is_aligned(data)) throw std::invalid_argument("Arrays must be aligned in memory.");
    return data;
}

template <class T>
std::span<const T> span(const Array<T>& array) {
    return {aligned_data(array.data()), array.size()};
}

inline DenseView view(const Matrix<float>& matrix) {
    return {aligned_data(matrix.data()), static_cast<std::int64_t>(matrix.shape(0)),
            static_cast<std::int64_t>(matrix.shape(1))};
}

// Moves a vector into a NumPy array without copying.
template <class T, class Allocator, class... Shape>
nb::ndarray<nb::numpy, T> to_numpy(std::vector<T, Allocator>&& values, Shape... shape) {
    using Vector = std::vector<T, Allocator>;
    auto owner = std::make_unique<Vector>(std::move(values));
    T* data = owner->data();
    const std::size_t size = owner->size();
    nb::capsule owner_capsule(owner.release(), [](void* p) noexcept { delete static_cast<Vector*>(p); });
    if constexpr (sizeof...(Shape) == 0)
        return nb::ndarray<nb::numpy, T>(data, {size}, owner_capsule);
    else
        return nb::ndarray<nb::numpy, T>(data, {static_cast<std::size_t>(shape)...}, owner_capsule);
}

inline nb::tuple to_numpy(Csr&& csr) {
    return nb::make_tuple(to_numpy(std::move(csr.indptr)), to_numpy(std::move(csr.indices)),
                          to_numpy(std::move(csr.values)));
}

// Validation level of a matrix: `structure` allows unsorted columns; `none` is for matrices returned by kernels.
enum class Validation { full, structure, none };

// A matrix passed from Python. It is validated once, and its arrays are kept alive.
class CheckedCsr {
public:
    CheckedCsr(Array<std::int64_t> indptr, Array<std::int32_t> indices, Array<float> values, std::int64_t cols,
               const char* name, Validation validation)
        : indptr_(std::move(indptr)), indices_(std::move(indices)), values_(std::move(values)) {
        view = {span(indptr_), span(indices_), span(values_), cols};
        const ReleasedGil released;
        if (validation == Validation::full) view.check(name);
        if (validation == Validation::structure) view.check_structure(name);
    }

    CsrView view;

private:
    Array<std::int64_t> indptr_;
    Array<std::int32_t> indices_;
    Array<float> values_;
};

class CheckedFeatures {
public:
    CheckedFeatures(const CheckedCsr& sparse, Matrix<float> dense, const char* name)
        : sparse_(sparse), dense_(std::move(dense)) {
        view = {sparse_.view, bind::view(dense_)};
        const ReleasedGil released;
        view.check_dense(name);
    }

    Features view;

private:
    CheckedCsr sparse_;
    Matrix<float> dense_;
};

// Reports progress to Python and handles Ctrl-C.
class PythonMonitor final : public Monitor {
public:
    explicit PythonMonitor(nb::object report) : report_(std::move(report)) {}

    void tick() override {
        const AcquiredGil held;
        if (!call_python([this] { return report(); })) throw nb::python_error();
    }

private:
    // Returns false if a Python exception was raised.
    bool report() const {
        if (PyErr_CheckSignals() != 0) return false;
        if (report_.is_none()) return true;
        const unsigned long long finished = done.load();
        PyObject* result = PyObject_CallFunction(report_.ptr(), "KK", finished, static_cast<unsigned long long>(total));
        Py_XDECREF(result);
        return result != nullptr;
    }

    nb::object report_;
};

// A model folder whose ownership is shared by its Python object and the arrays memory-mapped from it.
struct SharedFolder {
    std::shared_ptr<const ModelFolder> folder;
};

void register_matrix(nb::module_& m);
void register_indexing(nb::module_& m);
void register_layouts(nb::module_& m);
void register_solver(nb::module_& m);
void register_search(nb::module_& m);
void register_storage(nb::module_& m);
void register_text(nb::module_& m);

}  // namespace carya::bind

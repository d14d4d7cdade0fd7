#include <nanobind/stl/string.h>

#include "../core/memory_limit.hpp"
#include "../core/top_k.hpp"
#include "../kernels/kernels.hpp"
#include "arrays.hpp"

namespace carya::bind {

using namespace nb::literals;

namespace {

template <class T>
nb::ndarray<nb::numpy, T> allocate(std::size_t size) {
    return to_numpy(RawVector<T>(size));
}

}  // namespace

void register_matrix(nb::module_& m) {
    nb::enum_<Validation>(m, "Validation")
        .value("full", Validation::full)
        .value("structure", Validation::structure)
        .value("none", Validation::none);
    nb::class_<CheckedCsr>(m, "Csr", "Validated sparse matrix that shares its arrays with NumPy.")
        .def(nb::init<Array<std::int64_t>, Array<std::int32_t>, Array<float>, std::int64_t, const char*, Validation>(),
             "indptr"_a.noconvert(), "indices"_a.noconvert(), "values"_a.noconvert(), "cols"_a, "name"_a,
             "validation"_a = Validation::full)
        .def_prop_ro("rows", [](const CheckedCsr& csr) { return csr.view.rows(); })
        .def_prop_ro("cols", [](const CheckedCsr& csr) { return csr.view.cols; });

    nb::class_<CheckedFeatures>(m, "Features", "Validated features: a sparse block and a dense block side by side.")
        .def(nb::init<const CheckedCsr&, Matrix<float>, const char*>(), "sparse"_a, "dense"_a.noconvert(), "name"_a)
        .def_prop_ro("rows", [](const CheckedFeatures& features) { return features.view.rows(); })
        .def_prop_ro("sparse_cols", [](const CheckedFeatures& features) { return features.view.sparse.cols; })
        .def_prop_ro("dense_cols", [](const CheckedFeatures& features) { return features.view.dense.cols; });

    m.def(
        "transpose",
        [](const CheckedCsr& matrix, int threads) {
            Csr out;
            {
                const ReleasedGil released;
                out = transpose(matrix.view, threads);
            }
            return to_numpy(std::move(out));
        },
        "matrix"_a, "threads"_a, "Return the transposed matrix as (indptr, indices, values).");

    m.def(
        "merge_columns",
        [](const CheckedCsr& matrix, Array<std::int32_t> target_columns, std::int64_t cols, int threads) {
            Csr out;
            {
                const ReleasedGil released;
                out = merge_columns(matrix.view, span(target_columns), cols, threads);
            }
            return to_numpy(std::move(out));
        },
        "matrix"_a, "target_columns"_a.noconvert(), "cols"_a, "threads"_a,
        "Add each column c to column target_columns[c] of the result and return (indptr, indices, values).");

    m.def(
        "unite",
        [](const CheckedCsr& a, const CheckedCsr& b, int threads) {
            Csr out;
            {
                const ReleasedGil released;
                out = unite(a.view, b.view, threads);
            }
            return to_numpy(std::move(out));
        },
        "a"_a, "b"_a, "threads"_a,
        "Return the union of the nonzero patterns of a and b, with all values set to 1, as (indptr, indices, values).");

    m.def(
        "row_topk",
        [](const CheckedCsr& matrix, std::int64_t k, int threads) {
            TopK out;
            {
                const ReleasedGil released;
                out = row_topk(matrix.view, k, threads);
            }
            return nb::make_tuple(to_numpy(std::move(out.columns), matrix.view.rows(), k),
                                  to_numpy(std::move(out.values), matrix.view.rows(), k));
        },
        "matrix"_a, "k"_a, "threads"_a,
        "Return the k largest entries of each row, largest first, as (columns, values).");

    m.def(
        "contains",
        [](const CheckedCsr& matrix, Matrix<std::int32_t> columns, int threads) {
            std::vector<std::uint8_t> out;
            {
                const ReleasedGil released;
                out = contains(matrix.view, {columns.data(), columns.size()},
                               static_cast<std::int64_t>(columns.shape(1)), threads);
            }
            return to_numpy(std::move(out), columns.shape(0), columns.shape(1));
        },
        "matrix"_a, "columns"_a.noconvert(), "threads"_a,
        "Return an array that indicates whether each row i of matrix has an entry in column columns[i, j].");

    m.def("allocate_bytes", &allocate<std::uint8_t>, "size"_a,
          "Return an uninitialized array, which is stored in a file if a memory limit is set.");
    m.def("allocate_int32", &allocate<std::int32_t>, "size"_a);
    m.def("allocate_int64", &allocate<std::int64_t>, "size"_a);
    m.def("allocate_float32", &allocate<float>, "size"_a);
    m.def("set_memory_limit", &set_memory_limit, "bytes"_a, "folder"_a, nb::call_guard<ReleasedGil>(),
          "Store large arrays in files in a folder on disk; unmap their pages to stay below a memory limit.");
    m.def("clear_memory_limit", &clear_memory_limit, nb::call_guard<ReleasedGil>(), "Stop enforcing the memory limit.");
    m.def("memory_limit", &memory_limit, "Return the memory limit in bytes, or 0 if no limit is set.");
    m.def("page_out", &page_out, nb::call_guard<ReleasedGil>(),
          "Unmap the pages of all arrays that are stored in files.");
    m.def("resident_bytes", &resident_bytes, "Return the resident memory of this process in bytes, or 0.");

    m.def("thread_count", &thread_count, "n_jobs"_a,
          "Return the number of threads to use for n_jobs; -1 means all available cores.");
    m.def(
        "instruction_set", [] { return std::string(kernels().name); },
        "Return the name of the instruction set used by the kernels.");
}

}  // namespace carya::bind

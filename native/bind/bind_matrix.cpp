#include <nanobind/stl/string.h>

#include "../core/top_k.hpp"
#include "../kernels/kernels.hpp"
#include "arrays.hpp"

namespace carya::bind {

using namespace nb::literals;

void register_matrix(nb::module_& m) {
    nb::class_<CheckedCsr>(m, "Csr", "Validated sparse matrix that shares its arrays with NumPy.")
        .def(nb::init<Array<std::int64_t>, Array<std::int32_t>, Array<float>, std::int64_t, const char*, bool>(),
             "indptr"_a.noconvert(), "indices"_a.noconvert(), "values"_a.noconvert(), "cols"_a, "name"_a,
             "sorted"_a = true)
        .def_prop_ro("rows", [](const CheckedCsr& csr) { return csr.view.rows(); })
        .def_prop_ro("cols", [](const CheckedCsr& csr) { return csr.view.cols; });

    nb::class_<CheckedFeatures>(m, "Features", "Validated features: a sparse block and a dense block side by side.")
        .def(nb::init<const CheckedCsr&, Matrix<float>, const char*>(), "sparse"_a, "dense"_a.noconvert(), "name"_a)
        .def_prop_ro("rows", [](const CheckedFeatures& features) { return features.view.rows(); })
        .def_prop_ro("sparse_cols", [](const CheckedFeatures& features) { return features.view.sparse.cols; })
        .def_prop_ro("dense_cols", [](const CheckedFeatures& features) { return features.view.dense.cols; });

    m.def(
        "transpose",
        [](const CheckedCsr& matrix) {
            Csr out;
            {
                const nb::gil_scoped_release released;
                out = transpose(matrix.view);
            }
            return to_numpy(std::move(out));
        },
        "matrix"_a, "Return the transposed matrix as (indptr, indices, values).");

    m.def(
        "merge_columns",
        [](const CheckedCsr& matrix, Array<std::int32_t> target_columns, std::int64_t cols) {
            Csr out;
            {
                const nb::gil_scoped_release released;
                out = merge_columns(matrix.view, span(target_columns), cols);
            }
            return to_numpy(std::move(out));
        },
        "matrix"_a, "target_columns"_a.noconvert(), "cols"_a,
        "Add each column c to column target_columns[c] of the result and return (indptr, indices, values).");

    m.def(
        "row_topk",
        [](const CheckedCsr& matrix, std::int64_t k, int threads) {
            TopK out;
            {
                const nb::gil_scoped_release released;
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
                const nb::gil_scoped_release released;
                out = contains(matrix.view, {columns.data(), columns.size()},
                               static_cast<std::int64_t>(columns.shape(1)), threads);
            }
            return to_numpy(std::move(out), columns.shape(0), columns.shape(1));
        },
        "matrix"_a, "columns"_a.noconvert(), "threads"_a, "Return whether each row has entries in the given columns.");

    m.def("thread_count", &thread_count, "n_jobs"_a,
          "Return the number of threads to use for n_jobs; -1 means all available cores.");
    m.def(
        "instruction_set", [] { return std::string(kernels().name); },
        "Return the name of the instruction set used by the kernels.");
}

}  // namespace carya::bind

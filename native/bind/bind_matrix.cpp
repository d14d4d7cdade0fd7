#include <nanobind/stl/string.h>

#include "../kernels/kernels.hpp"
#include "../topk.hpp"
#include "arrays.hpp"

namespace carya::bind {

using namespace nb::literals;

void register_matrix(nb::module_& m) {
    nb::class_<CheckedCsr>(m, "Csr", "A checked sparse matrix; its arrays are shared, not copied.")
        .def(nb::init<Array<std::int64_t>, Array<std::int32_t>, Array<float>, std::int64_t, const char*, bool>(),
             "indptr"_a.noconvert(), "indices"_a.noconvert(), "values"_a.noconvert(), "cols"_a, "name"_a,
             "sorted"_a = true)
        .def_prop_ro("rows", [](const CheckedCsr& csr) { return csr.view.rows(); })
        .def_prop_ro("cols", [](const CheckedCsr& csr) { return csr.view.cols; });

    nb::class_<CheckedFeatures>(m, "Features", "A checked sparse block and a checked dense block, side by side.")
        .def(nb::init<const CheckedCsr&, Table<float>, const char*>(), "sparse"_a, "dense"_a.noconvert(), "name"_a)
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
            return give(std::move(out));
        },
        "matrix"_a, "Columns as rows: (indptr, indices, values).");

    m.def(
        "merge_columns",
        [](const CheckedCsr& matrix, Array<std::int32_t> to, std::int64_t cols) {
            Csr out;
            {
                const nb::gil_scoped_release released;
                out = merge_columns(matrix.view, span(to), cols);
            }
            return give(std::move(out));
        },
        "matrix"_a, "to"_a.noconvert(), "cols"_a, "Add up the columns that `to` maps to the same column.");

    m.def(
        "row_topk",
        [](const CheckedCsr& matrix, std::int64_t k, int threads) {
            TopK out;
            {
                const nb::gil_scoped_release released;
                out = row_topk(matrix.view, k, threads);
            }
            return nb::make_tuple(give(std::move(out.columns), matrix.view.rows(), k),
                                  give(std::move(out.values), matrix.view.rows(), k));
        },
        "matrix"_a, "k"_a, "threads"_a, "The k largest entries of each row: (columns, values), best first.");

    m.def(
        "contains",
        [](const CheckedCsr& matrix, Table<std::int32_t> columns, int threads) {
            std::vector<std::uint8_t> out;
            {
                const nb::gil_scoped_release released;
                out = contains(matrix.view, {columns.data(), columns.size()},
                               static_cast<std::int64_t>(columns.shape(1)), threads);
            }
            return give(std::move(out), columns.shape(0), columns.shape(1));
        },
        "matrix"_a, "columns"_a.noconvert(), "threads"_a, "Whether each row has entries in the given columns.");

    m.def("thread_count", &thread_count, "n_jobs"_a, "Threads to use for n_jobs; -1 is all cores of this process.");
    m.def("instruction_set", [] { return std::string(kernels().name); }, "The instruction set the kernels use here.");
}

}  // namespace carya::bind

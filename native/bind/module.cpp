#include "../kernels/kernels.hpp"
#include "arrays.hpp"

NB_MODULE(_core, m) {
    m.doc() = "Native core of Carya. Private; use the public classes in carya, which validate their input.";
    nanobind::set_leak_warnings(false);  // daemon threads can keep objects alive until the process exits
    carya::kernels();                    // reports an invalid CARYA_ISA on import rather than during the first query
    carya::bind::register_storage(m);
    carya::bind::register_matrix(m);
    carya::bind::register_indexing(m);
    carya::bind::register_layouts(m);
    carya::bind::register_solver(m);
    carya::bind::register_search(m);
    carya::bind::register_text(m);
}

#include "arrays.hpp"

NB_MODULE(_core, m) {
    m.doc() = "Native core of Carya. Private; use the public classes in carya, which validate their input.";
    carya::bind::register_storage(m);
    carya::bind::register_matrix(m);
    carya::bind::register_indexing(m);
    carya::bind::register_layouts(m);
    carya::bind::register_solver(m);
    carya::bind::register_search(m);
    carya::bind::register_text(m);
}

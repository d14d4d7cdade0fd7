#include "arrays.hpp"

NB_MODULE(_core, m) {
    m.doc() = "The native core of Carya. Private: use the functions of the carya package, which check their input.";
    carya::bind::register_store(m);
    carya::bind::register_matrix(m);
    carya::bind::register_index(m);
    carya::bind::register_train(m);
    carya::bind::register_search(m);
    carya::bind::register_text(m);
}

#include <nanobind/stl/string.h>

#include "../core/exchange_paths.hpp"
#include "../core/xxhash.hpp"
#include "../search/tree_level.hpp"
#include "arrays.hpp"

namespace carya::bind {

using namespace nb::literals;

void register_storage(nb::module_& m) {
    // Damage to a model may not be detected until a query reads the damaged data, so queries must raise the same
    // exception as carya.load.
    nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (const FormatError& error) {
            // Messages contain paths, which need not be valid UTF-8.
            const auto message = nb::steal(PyUnicode_DecodeFSDefault(error.what()));
            PyErr_SetObject(nb::module_::import_("carya.errors").attr("ModelFormatError").ptr(), message.ptr());
        }
    });

    nb::class_<SharedFolder>(m, "ModelFolder", "Open folder of a saved model with memory-mapped arrays.")
        .def(
            "__init__",
            [](SharedFolder* self, nb::bytes path) {
                const std::string name(path.c_str(), path.size());
                const ReleasedGil released;
                new (self) SharedFolder{std::make_shared<const ModelFolder>(name)};
            },
            "path"_a)
        .def_prop_ro(
            "descriptor", [](const SharedFolder& self) { return self.folder->descriptor(); },
            "The file descriptor of the folder; it remains open as long as this object exists.")
        .def_prop_ro("path",
                     [](const SharedFolder& self) {
                         const std::string& path = self.folder->path();
                         return nb::bytes(path.data(), path.size());
                     })
        .def_prop_ro("manifest",
                     [](const SharedFolder& self) {
                         const std::string& text = self.folder->manifest_text();
                         return nb::bytes(text.data(), text.size());
                     })
        .def(
            "arrays",
            [](const SharedFolder& self) {
                nb::list out;
                for (const StoredArray& array : self.folder->arrays()) {
                    nb::list shape;
                    for (const std::int64_t extent : array.shape) shape.append(extent);
                    nb::capsule owner(new SharedFolder(self),
                                      [](void* p) noexcept { delete static_cast<SharedFolder*>(p); });
                    out.append(nb::make_tuple(
                        array.name, array.dtype, shape,
                        nb::ndarray<nb::numpy, const std::uint8_t>(array.bytes.data(), {array.bytes.size()}, owner)));
                }
                return out;
            },
            "Return (name, dtype, shape, bytes) for each array in file order.")
        .def(
            "verify",
            [](const SharedFolder& self, nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu> array) {
                const ReleasedGil released;
                self.folder->checksums().verify(array.data(), array.nbytes());
            },
            "array"_a.noconvert(),
            "Raise ModelFormatError if an array from this file is damaged. Arrays from other sources are ignored.");

    m.def(
        "block_checksums",
        [](Array<std::uint8_t> data) {
            std::vector<std::uint64_t> out;
            {
                const ReleasedGil released;
                out = block_checksums(span(data));
            }
            return to_numpy(std::move(out));
        },
        "data"_a.noconvert(), "Return the checksum of each 64 KiB block of a file.");

    m.def(
        "xxh64",
        [](Array<std::uint8_t> data) {
            const ReleasedGil released;
            return xxh64(data.data(), data.size());
        },
        "data"_a.noconvert(), "Return the XXH64 checksum of an array.");

    m.def(
        "exchange_paths", [](nb::bytes a, nb::bytes b) { return exchange_paths(a.c_str(), b.c_str()); }, "a"_a, "b"_a,
        "Swap two paths atomically; return 0 or the error number.");

    m.def(
        "group_by_parent",
        [](Array<std::int32_t> parents, std::int64_t n_parents) {
            TreeLevel out;
            {
                const ReleasedGil released;
                out = group_by_parent(span(parents), n_parents);
            }
            return nb::make_tuple(to_numpy(std::move(out.order)), to_numpy(std::move(out.chunks)));
        },
        "parents"_a.noconvert(), "n_parents"_a, "Group the nodes of a level by parent and return (order, chunks).");
}

}  // namespace carya::bind

#include <nanobind/stl/string.h>

#include "../checksum.hpp"
#include "../files.hpp"
#include "../tree.hpp"
#include "arrays.hpp"

namespace carya::bind {

using namespace nb::literals;

void register_store(nb::module_& m) {
    // Damage may show only when a query touches it, so the error must be the one that opening a model raises.
    nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (const FormatError& error) {
            PyErr_SetString(nb::module_::import_("carya.errors").attr("ModelFormatError").ptr(), error.what());
        }
    });

    nb::class_<OpenedFolder>(m, "Folder", "The folder of a saved model, opened and checked; its arrays are mapped.")
        .def(
            "__init__",
            [](OpenedFolder* self, const std::string& path) {
                const nb::gil_scoped_release released;
                new (self) OpenedFolder{std::make_shared<const Folder>(path)};
            },
            "path"_a)
        .def_prop_ro("manifest",
                     [](const OpenedFolder& self) {
                         const std::string& text = self.folder->manifest_text();
                         return nb::bytes(text.data(), text.size());
                     })
        .def(
            "arrays",
            [](const OpenedFolder& self) {
                nb::list out;
                for (const StoredArray& array : self.folder->arrays()) {
                    nb::list shape;
                    for (const std::int64_t extent : array.shape) shape.append(extent);
                    nb::capsule owner(new OpenedFolder(self),
                                      [](void* p) noexcept { delete static_cast<OpenedFolder*>(p); });
                    out.append(nb::make_tuple(
                        array.name, array.dtype, shape,
                        nb::ndarray<nb::numpy, const std::uint8_t>(array.bytes.data(), {array.bytes.size()}, owner)));
                }
                return out;
            },
            "(name, type, shape, bytes) of each array, in the order of the file.")
        .def(
            "verify",
            [](const OpenedFolder& self, nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu> array) {
                const nb::gil_scoped_release released;
                self.folder->seal().need(array.data(), array.nbytes());
            },
            "array"_a.noconvert(), "Raise ModelFormatError unless an array, if it lies in this file, is unaltered.");

    m.def(
        "seals",
        [](Array<std::uint8_t> data) {
            std::vector<std::uint64_t> out;
            {
                const nb::gil_scoped_release released;
                out = seals_of(span(data));
            }
            return give(std::move(out));
        },
        "data"_a.noconvert(), "The checksums of the pieces of a file.");

    m.def(
        "xxh64",
        [](Array<std::uint8_t> data) {
            const nb::gil_scoped_release released;
            return xxh64(data.data(), data.size());
        },
        "data"_a.noconvert(), "The XXH64 checksum of some bytes.");

    m.def(
        "exchange_paths",
        [](const std::string& a, const std::string& b) { return exchange_paths(a.c_str(), b.c_str()); }, "a"_a, "b"_a,
        "Swap two paths in one step; False where the system cannot.");

    m.def(
        "group_by_parent",
        [](Array<std::int32_t> parents, std::int64_t count) {
            Children out;
            {
                const nb::gil_scoped_release released;
                out = group_by_parent(span(parents), count);
            }
            return nb::make_tuple(give(std::move(out.order)), give(std::move(out.chunks)));
        },
        "parents"_a.noconvert(), "count"_a, "The nodes of a level by parent, and where those of each parent begin.");
}

}  // namespace carya::bind

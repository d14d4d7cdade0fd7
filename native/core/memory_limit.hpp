// Bounds the resident memory of the process: large arrays are stored in temporary files, and their pages are unmapped
// when the process approaches the limit. The operating system writes these pages to disk when it needs the memory that
// they occupy.
#pragma once

#include <cstddef>
#include <string>

namespace carya {

// Starts enforcing a limit. Throws std::runtime_error if a limit is already set, if the folder cannot be used, or if
// the platform is not supported. `folder` must be on a disk.
void set_memory_limit(std::size_t bytes, const std::string& folder);

// Stops enforcing the limit. Arrays in files remain valid.
void clear_memory_limit();

// Returns the limit in bytes, or 0 if no limit is set.
std::size_t memory_limit();

// Returns memory in a temporary file, or nullptr if no limit is set. Throws std::runtime_error if the disk is full.
void* allocate_in_file(std::size_t bytes);

// Frees memory that was allocated by allocate_in_file. Returns false if the memory was allocated in another way.
bool free_in_file(void* memory, std::size_t bytes) noexcept;

// Unmaps the pages of all arrays that are stored in files. They are read again when they are used.
void page_out();

// Returns the resident memory of this process in bytes, or 0 if it is unknown.
std::size_t resident_bytes();

// Makes the allocator return to the operating system the memory that worker threads have freed.
void release_free_memory();

// Releases the pages that are completely within a range of memory. The contents of allocated memory are lost; the pages
// of mapped files are read again when they are used.
void discard_pages(const void* memory, std::size_t bytes);

}  // namespace carya

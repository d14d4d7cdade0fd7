// Releases and acquires the GIL in threads that may outlive the interpreter.
//
// When the interpreter exits, Python 3.11 to 3.13 call pthread_exit in every daemon thread that tries to take the GIL.
// This call unwinds the stack, which would terminate the process at the first noexcept C++ function. With the functions
// below, such a thread instead sleeps until the process exits, as in Python 3.14.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace carya::bind {

// Calls a function that may take the GIL or run Python code. Does not return if the interpreter is shutting down.
// Functions that are called between this one and the C API must not own C++ objects with destructors, because the
// thread does not hold the GIL while its stack is unwound.
// The exception object of pthread_exit has no address, which UndefinedBehaviorSanitizer reports as a null reference.
template <class Call>
#ifdef __GLIBCXX__
__attribute__((no_sanitize("undefined")))
#endif
auto call_python(const Call& call) {
#ifdef __GLIBCXX__
    try {
        return call();
    } catch (const abi::__forced_unwind&) {
        for (;;) ::pause();
    }
#else
    return call();
#endif
}

// Releases the GIL and takes it again on destruction.
class ReleasedGil {
public:
    ReleasedGil() : state_(PyEval_SaveThread()) {}
    ReleasedGil(const ReleasedGil&) = delete;
    ReleasedGil& operator=(const ReleasedGil&) = delete;
    ~ReleasedGil() {
        call_python([this] { PyEval_RestoreThread(state_); });
    }

private:
    PyThreadState* state_;
};

// Takes the GIL and releases it on destruction.
class AcquiredGil {
public:
    AcquiredGil() : state_(call_python([] { return PyGILState_Ensure(); })) {}
    AcquiredGil(const AcquiredGil&) = delete;
    AcquiredGil& operator=(const AcquiredGil&) = delete;
    ~AcquiredGil() { PyGILState_Release(state_); }

private:
    PyGILState_STATE state_;
};

}  // namespace carya::bind

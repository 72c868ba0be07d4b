// What a C++ program can say to rota: rota.h, with objects whose scope is the request or the phase. Header only; C++11.
//
//     rota::Request request(std::chrono::milliseconds(2));  // kernels follow in about 2 ms
//     ...                                                   // it is served when this goes out of scope
#ifndef ROTA_HPP
#define ROTA_HPP

#include "rota.h"

#include <chrono>
#include <string>

namespace rota {

using Duration = std::chrono::nanoseconds;

inline std::uint64_t count(Duration time) noexcept {
    return time.count() > 0 ? static_cast<std::uint64_t>(time.count()) : 0;
}

/// A request arrived, and its kernels follow in about this time.
inline int hint(Duration in) noexcept { return rota_hint(count(in)); }

/// A request, from where it begins to the end of its scope.
class Request {
public:
    /// Its kernels follow in about this time, or at once; it is to be served within its SLO, or its job's.
    explicit Request(Duration in = Duration::zero(), Duration slo = Duration::zero()) noexcept
        : request_(), open_(true) {
        said_ = rota_request_begin(&request_, count(in), count(slo));
    }

    Request(const Request &) = delete;
    Request &operator=(const Request &) = delete;

    Request(Request &&other) noexcept : request_(other.request_), said_(other.said_), open_(other.open_) {
        other.open_ = false;
    }

    ~Request() { end(); }

    /// It is served before the end of its scope. Again, it does nothing.
    int end() noexcept {
        if (!open_) return ROTA_INVALID;
        open_ = false;
        return rota_request_end(&request_);
    }

    /// What became of its beginning.
    int said() const noexcept { return said_; }

private:
    rota_request request_;
    int said_ = ROTA_OK;
    bool open_;
};

/// A phase in which the program gives way to others as soon as it has no work for the GPU.
class Phase {
public:
    explicit Phase(const char *name) noexcept { rota_phase_begin(name); }
    Phase(const Phase &) = delete;
    Phase &operator=(const Phase &) = delete;
    ~Phase() { rota_phase_end(); }
};

/// Asks for another class or weight for the job of this process. Why it is refused is in `reason`.
inline int set(int cls, std::uint32_t weight = 0, std::string *reason = nullptr) {
    char text[512];
    const int said = rota_set(cls, weight, text, sizeof text);
    if (reason) *reason = text;
    return said;
}

/// What there is to know.
inline rota_statistics statistics() noexcept {
    rota_statistics found = {};
    rota_statistics_get(&found, sizeof found);
    return found;
}

}  // namespace rota

#endif

// Turns C++ exceptions into a Status: none may reach Rust.
#pragma once

#include "shim.h"

#include <c10/util/Exception.h>

#include <string>

// Keeps the message of the latest failure of this thread.
void remember_error(const std::string &message) noexcept;

template <typename Body> Status guarded(Body &&body) noexcept {
  try {
    body();
    return STATUS_OK;
  } catch (const c10::OutOfMemoryError &error) {
    remember_error(error.what_without_backtrace());
    return STATUS_OUT_OF_MEMORY;
  } catch (const c10::Error &error) {
    remember_error(error.what_without_backtrace());
    return STATUS_FAILED;
  } catch (const std::exception &error) {
    remember_error(error.what());
    return STATUS_FAILED;
  } catch (...) {
    remember_error("an exception of unknown type");
    return STATUS_FAILED;
  }
}

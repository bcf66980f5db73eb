package nvml

import "errors"

// ErrNoLibrary is returned by Open where there is no NVIDIA driver.
var ErrNoLibrary = errors.New("no NVIDIA driver library found")

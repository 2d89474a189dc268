// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/internal/kernel/iouring"
	"github.com/niclane/niclane/lane/device"
)

// probeIoUringNAPI makes an io_uring that tracks NAPIs statically (Linux 6.13). An older kernel
// returns EINVAL, because it does not know these fields of the request.
func probeIoUringNAPI() device.Finding {
	r, err := iouring.New(time.Millisecond)
	if err == nil {
		err = r.Close()
	}
	var setup *iouring.SetupError
	switch {
	case err == nil:
		return yes("a ring took static tracking")
	case errors.As(err, &setup) && setup.Errno == unix.EPERM:
		const path = "/proc/sys/kernel/io_uring_disabled"
		if b, rerr := os.ReadFile(path); rerr == nil && strings.TrimSpace(string(b)) != "0" {
			return no("disabled by the sysctl kernel.io_uring_disabled (%s)", strings.TrimSpace(string(b)))
		}
		return unanswered(err)
	case errors.Is(err, unix.EINVAL):
		return no("%v (Linux 6.13)", err)
	}
	return answer(err, "", unix.ENOSYS)
}

// probeNAPITrace looks for the tracepoint napi_poll in the kernel's BTF. BPF programs at this
// tracepoint need that. The BTF has megabytes, so the answer is kept with those of probeTC.
func probeNAPITrace() device.Finding {
	const path = "/sys/kernel/btf/vmlinux"
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return no("no %s (CONFIG_DEBUG_INFO_BTF)", path)
	case err != nil:
		return unanswered(err)
	case !bytes.Contains(b, []byte("\x00btf_trace_napi_poll\x00")):
		return no("no tracepoint napi_poll in %s", path)
	}
	return yes("the tracepoint is in %s", path)
}

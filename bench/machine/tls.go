// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// TLSFile is the file with the number of connections that the kernel encrypts, in the calling
// thread's network namespace. It exists if the module tls is loaded
// (Documentation/networking/tls.rst).
const TLSFile = "/proc/thread-self/net/tls_stat"

// KernelTLS counts connections for which the kernel does TLS.
type KernelTLS struct {
	// Software and Device count the connections whose sent data the kernel started to encrypt: by
	// a processor, or by the card.
	Software uint64 `json:"software"`
	Device   uint64 `json:"device"`
}

// readTLS reads TLSFile. It returns nil if the kernel has no TLS.
func readTLS() (*KernelTLS, error) {
	f, err := os.Open(TLSFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := parseTLS(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", TLSFile, err)
	}
	return t, nil
}

func parseTLS(in io.Reader) (*KernelTLS, error) {
	t := &KernelTLS{}
	found := 0
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) != 2 {
			continue
		}
		var to *uint64
		switch f[0] {
		case "TlsTxSw":
			to = &t.Software
		case "TlsTxDevice":
			to = &t.Device
		default:
			continue
		}
		n, err := strconv.ParseUint(f[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f[0], err)
		}
		*to = n
		found++
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if found != 2 {
		return nil, errors.New("no TlsTxSw or no TlsTxDevice")
	}
	return t, nil
}

// since returns the growth since before; nil: the kernel has no TLS. If before is nil, the module was
// loaded after that reading.
func (t *KernelTLS) since(before *KernelTLS) *KernelTLS {
	if t == nil {
		return nil
	}
	if before == nil {
		before = &KernelTLS{}
	}
	return &KernelTLS{Software: less(t.Software, before.Software), Device: less(t.Device, before.Device)}
}

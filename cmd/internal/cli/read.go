// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
)

// MaxConfig is the largest size of a lanes file in bytes. Real files are far smaller. The limit keeps
// niclane from reading a wrong path, such as a device or a log, into memory.
const MaxConfig = 1 << 20

// ReadFile reads the file at path: see Read.
func ReadFile(path string, most int64, what string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f, path, most, what)
}

// Read reads r to its end. It returns an error if r has more than most bytes. name and what are for that
// error: the name of r, and what it is not ("a lanes file").
func Read(r io.Reader, name string, most int64, what string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s: larger than %d bytes, not %s", name, most, what)
	}
	return text, err
}

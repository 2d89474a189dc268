// SPDX-License-Identifier: Apache-2.0

package power

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// maxAttribute limits a read of a sysfs file, in bytes. A file with one number is far smaller.
const maxAttribute = 256

// attribute reads a file of one line.
func attribute(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxAttribute+1))
	if err != nil {
		return "", err
	}
	if len(b) > maxAttribute {
		return "", fmt.Errorf("%s: more than %d bytes", path, maxAttribute)
	}
	return strings.TrimSpace(string(b)), nil
}

// count reads a file with one number from 0 to 2^64-1.
func count(path string) (float64, error) {
	text, err := attribute(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %.40q, want a number", path, text)
	}
	return float64(n), nil
}

// files is a device whose sensors are sysfs files. Each reading opens the files again. So a file
// that has vanished gives an error, not an old value.
type files []string

func (f files) read(ctx context.Context) ([]float64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	v := make([]float64, len(f))
	for i, path := range f {
		var err error
		if v[i], err = count(path); err != nil {
			if errors.Is(err, os.ErrNotExist) {
				err = fmt.Errorf("the sensor is gone: %w", err)
			}
			return nil, err
		}
	}
	return v, nil
}

func (files) close(context.Context) error { return nil }

// entries returns the full paths of a sysfs directory's entries.
func entries(dir string) ([]string, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range list {
		out = append(out, filepath.Join(dir, e.Name()))
	}
	return out, nil
}

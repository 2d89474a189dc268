// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
)

// maxConfig is the largest size of a lanes file in bytes. Real files are far smaller. The limit
// keeps niclane from reading a wrong path, such as a device or a log, into memory.
const maxConfig = 1 << 20

// readConfig reads and parses a lanes file.
func readConfig(path string) (*config.File, []byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	return parseConfig(path, f)
}

// parseConfig reads and parses a lanes file from r. path is its name in messages.
func parseConfig(path string, r io.Reader) (*config.File, []byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxConfig+1))
	if err != nil {
		return nil, nil, err
	}
	if len(text) > maxConfig {
		return nil, nil, fmt.Errorf("%s: larger than %d bytes, not a lanes file", path, maxConfig)
	}
	file, err := config.ParseFile(path, text)
	return file, text, err
}

// look reads the state of devices, but does not probe their capabilities. If a device does not
// exist, it returns an error.
func (a *app) look(ctx context.Context, devices []string) (*device.State, error) {
	st, known, err := a.Engine().Observe(ctx, devices, nil)
	if err == nil && !known {
		err = fmt.Errorf("%s: %w", strings.Join(devices, ", "), unix.ENODEV)
	}
	return st, err
}

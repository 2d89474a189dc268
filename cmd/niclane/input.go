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

// maxConfig is far above any sensible file; it keeps a wrong path (a device, a
// log) from being read into memory.
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

// parseConfig reads and parses what path has, or would have.
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

// look reads devices that are there, without probing what they can do.
func (a *app) look(ctx context.Context, devices []string) (*device.State, error) {
	st, known, err := a.Engine().Observe(ctx, devices, nil)
	if err == nil && !known {
		err = fmt.Errorf("%s: %w", strings.Join(devices, ", "), unix.ENODEV)
	}
	return st, err
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/niclane/niclane/cmd/internal/cli"
	"github.com/niclane/niclane/lane/config"
	"github.com/niclane/niclane/lane/device"
)

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
	text, err := cli.Read(r, path, cli.MaxConfig, "a lanes file")
	if err != nil {
		return nil, nil, err
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

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// follow prints what a guest writes to its log, until ctx ends. It leaves out what is only for the
// function judge: the names and verdicts of tests, and the kernel's log.
func follow(ctx context.Context, log string) {
	f, err := os.Open(log)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	r := bufio.NewReader(f)
	line := ""
	for {
		part, err := r.ReadString('\n')
		line += part
		switch {
		case err == nil:
			if strings.HasPrefix(line, "=== simcard:") {
				return
			}
			if !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") && line != "PASS\n" {
				fmt.Print(line)
			}
			line = ""
		case !errors.Is(err, io.EOF):
			fmt.Println(err)
			return
		default: // look again: the guest writes through another mount, so there are no notifications
			select {
			case <-ctx.Done():
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"time"
)

// init has every process of niclane collect its garbage ten times a second: what is
// held by nothing is closed at once, not in hours. The soak builds it into the command.
func init() {
	go func() {
		for {
			runtime.GC()
			time.Sleep(100 * time.Millisecond)
		}
	}()
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"time"
)

// init makes a process of niclane collect garbage ten times a second. If the code no longer holds a
// descriptor that it needs, the collector closes it at once, and not after hours. The soak builds
// this file into the command.
func init() {
	go func() {
		for {
			runtime.GC()
			time.Sleep(100 * time.Millisecond)
		}
	}()
}

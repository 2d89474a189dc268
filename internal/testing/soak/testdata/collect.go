// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"time"
)

// init makes a process of niclane collect garbage ten times a second. Suppose that the code needs a
// descriptor but does not hold it. The collector then closes the descriptor at once, and not after
// hours. The soak builds this file into the command.
func init() {
	go func() {
		for {
			runtime.GC()
			time.Sleep(100 * time.Millisecond)
		}
	}()
}

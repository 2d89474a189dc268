// SPDX-License-Identifier: Apache-2.0

package result

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// parallel calls do(0) to do(n-1), distributed over all processors.
func parallel(n int, do func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}

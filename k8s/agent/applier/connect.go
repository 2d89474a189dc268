// SPDX-License-Identifier: Apache-2.0

package card

import "github.com/niclane/niclane/lane/apply"

// A connection is to the kernel. To make one and to find the maps of the attached
// programs is a fifth of what a pod costs (BenchmarkPod of cmd/niclane-agent): the one
// that has made a pod's members is kept for the next pod, and where there is none it is
// made while the plan is, which depends on neither. It is in the network namespace of the
// process: no goroutine of the agent's enters another one.
type connection struct {
	runDir string
	made   chan struct{}
	kept   bool          // from an earlier apply
	k      *apply.System // nil: taken, or err
	err    error
}

// connect has the connection that is kept, or begins one. Who does not take it has to
// close it.
func (c *Card) connect() *connection {
	if c.kernel == nil {
		return begin(c.RunDir)
	}
	to := &connection{runDir: c.RunDir, made: make(chan struct{}), kept: true, k: c.kernel}
	c.kernel = nil
	to.k.Anew()
	close(to.made)
	return to
}

func begin(runDir string) *connection {
	to := &connection{runDir: runDir, made: make(chan struct{})}
	go func() {
		defer close(to.made)
		to.k, to.err = apply.NewKernel(to.runDir)
	}()
	return to
}

// fresh has a connection that was kept be made anew: for who looks at the whole host,
// where control groups may have been mounted since.
func (to *connection) fresh() *connection {
	if !to.kept {
		return to
	}
	to.close()
	return begin(to.runDir)
}

// take waits for the connection, which is the caller's then. Whoever takes twice, to
// make what the first could not, gets a new one.
func (to *connection) take() (*apply.System, error) {
	<-to.made
	if to.k == nil && to.err == nil {
		return apply.NewKernel(to.runDir)
	}
	k := to.k
	to.k = nil
	return k, to.err
}

// close ends a connection that nobody took.
func (to *connection) close() {
	<-to.made
	if to.k != nil {
		_ = to.k.Close() // nothing was written
	}
}

// release keeps a kept connection that nobody took, and ends another.
func (c *Card) release(to *connection) {
	if to.kept && to.k != nil {
		c.kernel = to.k
		return
	}
	to.close()
}

// disconnect closes the connection that is kept.
func (c *Card) disconnect() {
	if c.kernel != nil {
		_ = c.kernel.Close() // what it wrote was read back
		c.kernel = nil
	}
}

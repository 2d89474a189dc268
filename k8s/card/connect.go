// SPDX-License-Identifier: Apache-2.0

package card

import "github.com/niclane/niclane/apply"

// A connection is to the kernel. It is made while the plan is: a tenth of what a pod
// costs, and it depends on neither the pods nor the plan. It is in the network namespace of
// the process: no goroutine of the agent's enters another one.
type connection struct {
	made chan struct{}
	k    *apply.System // nil: taken, or err
	err  error
}

// connect begins a connection. Who does not take it has to close it.
func connect() *connection {
	c := &connection{made: make(chan struct{})}
	go func() {
		defer close(c.made)
		c.k, c.err = apply.NewKernel()
	}()
	return c
}

// take waits for the connection, which is the caller's then. Whoever takes twice, to
// make what the first could not, gets a new one.
func (c *connection) take() (*apply.System, error) {
	<-c.made
	if c.k == nil && c.err == nil {
		return apply.NewKernel()
	}
	k := c.k
	c.k = nil
	return k, c.err
}

// close ends a connection that nobody took.
func (c *connection) close() {
	<-c.made
	if c.k != nil {
		_ = c.k.Close() // nothing was written
	}
}

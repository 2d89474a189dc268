// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// until waits for a condition. holds also returns the present state, for the error.
func until(ctx context.Context, limit time.Duration, what string, holds func(context.Context) (bool, string)) error {
	last := ""
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, limit, true,
		func(ctx context.Context) (bool, error) {
			ok, how := holds(ctx)
			last = how
			return ok, nil
		})
	if err != nil {
		return fmt.Errorf("wait until %s: %w: %s", what, err, last)
	}
	return nil
}

// until waits for a condition while all daemons run.
func (c *Cluster) until(limit time.Duration, what string, holds func(context.Context) (bool, string)) error {
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	done := make(chan struct{})
	defer close(done)
	for name, p := range c.daemons {
		go func() {
			select {
			case <-p.Done():
				cancel(fmt.Errorf("%s has ended: %w", name, p.Wait()))
			case <-done:
			}
		}()
	}
	err := until(ctx, limit, what, holds)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return fmt.Errorf("%w (%w)", err, cause)
	}
	return err
}

// Until fails the test unless a condition holds in time.
func (c *Cluster) Until(limit time.Duration, what string, holds func(context.Context) (bool, string)) {
	c.t.Helper()
	if err := c.until(limit, what, holds); err != nil {
		c.t.Fatal(err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// until waits until holds returns true, and returns an error if that takes longer than limit. The
// text that holds returns becomes a part of the error.
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

// until does the same as the function until. It also returns an error if one of the cluster's
// daemons ends meanwhile.
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

// Until waits until holds returns true. It fails the test if that takes longer than limit.
func (c *Cluster) Until(limit time.Duration, what string, holds func(context.Context) (bool, string)) {
	c.t.Helper()
	if err := c.until(limit, what, holds); err != nil {
		c.t.Fatal(err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/niclane/niclane/bench/agent"
)

// An agentTask is a task that runs as a job of an agent.
type agentTask struct {
	*agent.Job
	host string
}

func (t *agentTask) name() string          { return t.What + " on " + t.host }
func (t *agentTask) over() <-chan struct{} { return t.Done() }

func (t *agentTask) result(ctx context.Context, into any) error {
	select {
	case <-t.Done():
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s: %w", t.name(), context.Cause(ctx)), t.stop())
	}
	end, err := t.End()
	switch {
	case err != nil:
		return err
	case end.Error != "" && ctx.Err() != nil:
		return fmt.Errorf("%s: %w", t.name(), context.Cause(ctx))
	case end.Error != "":
		return fmt.Errorf("%s: %s", t.name(), end.Error)
	}
	if err := json.Unmarshal(end.Result, into); err != nil {
		return fmt.Errorf("%s: result: %w", t.name(), err)
	}
	return nil
}

// stopTime limits how long a job may take to end when asked.
const stopTime = 15 * time.Second

func (t *agentTask) stop() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), stopTime, errors.New("did not end when asked"))
	defer cancel()
	return t.Stop(ctx)
}

func (t *agentTask) ended() error {
	select {
	case <-t.Done():
		end, err := t.End()
		if err != nil {
			return err
		}
		return fmt.Errorf("%s has ended: %s", t.name(), cmp.Or(end.Error, "by itself"))
	default:
		return nil
	}
}

// wait waits until d has passed or ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

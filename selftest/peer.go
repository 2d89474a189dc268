// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/niclane/niclane/bench/agent"
)

// Remote is another host, on which an agent runs.
type Remote struct{ *agent.Client }

// Start starts a part of niclane on the remote host.
func (r Remote) Start(ctx context.Context, what, part string, config any) (Task, error) {
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	j, err := r.Client.Start(ctx, agent.Request{What: what, Part: part, Config: text})
	if err != nil {
		return nil, err
	}
	return remoteTask{j}, nil
}

type remoteTask struct{ *agent.Job }

func (t remoteTask) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, endTime, errors.New("did not end when asked"))
	defer cancel()
	return t.Job.Stop(ctx)
}

func (t remoteTask) Result(ctx context.Context, into any) error {
	select {
	case <-t.Done():
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", t.What, context.Cause(ctx))
	}
	end, err := t.End()
	switch {
	case err != nil:
		return err
	case end.Error != "":
		return fmt.Errorf("%s: %s", t.What, end.Error)
	}
	if err := json.Unmarshal(end.Result, into); err != nil {
		return fmt.Errorf("%s: result: %w", t.What, err)
	}
	return nil
}

// patience is the time limit for steps that usually take almost no time.
const patience = 30 * time.Second

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// answering is the longest time for which the agent's loops may be busy before a probe fails. An
// apply on a card with many pods takes seconds.
const answering = 20 * time.Second

// serveProbes serves /livez and /readyz until ctx ends: whether the agent's loops go on, and whether
// it also knows its node. Whether lanes hold is not their subject: a restart does not mend a card.
func (a *Agent) serveProbes(ctx context.Context) error {
	if a.o.Probes == "" {
		<-ctx.Done()
		return nil
	}
	l, err := net.Listen("tcp", a.o.Probes)
	if err != nil {
		return fmt.Errorf("probes: %w", err)
	}
	mux := http.NewServeMux()
	probe := func(path string, check func(context.Context) error) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), answering)
			defer cancel()
			if err := check(ctx); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		})
	}
	probe("/livez", a.lanes.Alive)
	probe("/readyz", func(ctx context.Context) error {
		if !a.cluster.Synced() {
			return errors.New("the API server has not answered yet")
		}
		return a.lanes.Alive(ctx)
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

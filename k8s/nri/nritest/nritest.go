// SPDX-License-Identifier: Apache-2.0

// Package nritest runs NRI's own code for the runtime, so that tests can connect plugins to it.
package nritest

import (
	"context"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	validator "github.com/containerd/nri/plugins/default-validator/builtin"
)

// A Runtime is the runtime's side of NRI, to which plugins connect.
type Runtime struct {
	*adaptation.Adaptation
	// Synced receives a value for each plugin that has connected, up to 10.
	Synced <-chan struct{}
}

// Start starts a runtime that has the given pods and listens on a socket. The caller must call
// Stop.
func Start(t testing.TB, socket string, pods ...*api.PodSandbox) *Runtime {
	t.Helper()
	synced := make(chan struct{}, 10)
	sync := func(ctx context.Context, f adaptation.SyncCB) error {
		_, err := f(ctx, pods, nil)
		select {
		case synced <- struct{}{}:
		default:
		}
		return err
	}
	update := func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil }
	none := t.TempDir()
	r, err := adaptation.New("test", "v2.3.7", sync, update,
		adaptation.WithSocketPath(socket), adaptation.WithPluginPath(none), adaptation.WithPluginConfigPath(none),
		adaptation.WithDefaultValidator(&validator.DefaultValidatorConfig{Enable: true}))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	return &Runtime{r, synced}
}

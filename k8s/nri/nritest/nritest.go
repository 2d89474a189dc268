// SPDX-License-Identifier: Apache-2.0

// Package nritest has NRI's own runtime side, for tests of plugins.
package nritest

import (
	"context"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	validator "github.com/containerd/nri/plugins/default-validator/builtin"
)

// A Runtime is an NRI runtime that plugins connect to.
type Runtime struct {
	*adaptation.Adaptation
	// Synced receives a value for each plugin that has connected, up to 10.
	Synced <-chan struct{}
}

// Start makes a runtime with these pods listen on a socket. The caller stops it.
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

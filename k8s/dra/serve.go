// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// serve answers kubelet until end is called, and has it find the driver. What ends a
// server otherwise is told to fail.
//
// k8s.io/dynamic-resource-allocation/kubeletplugin does the same, and links every API
// of Kubernetes' with its client: half of the agent, on disk and resident.
func (d *driver) serve(fail func(error)) (end func(), err error) {
	data := filepath.Join(d.KubeletDir, "plugins", DriverName)
	if err := os.MkdirAll(data, 0o750); err != nil {
		return nil, err
	}
	socket := filepath.Join(data, "dra.sock")
	endPlugin, err := listen(socket, fail, func(s *grpc.Server) {
		draapi.RegisterDRAPluginServer(s, d)
		health.RegisterDRAResourceHealthServer(s, d)
	})
	if err != nil {
		return nil, err
	}
	// kubelet looks for sockets there (pkg/kubelet/pluginmanager).
	endRegistrar, err := listen(filepath.Join(d.KubeletDir, "plugins_registry", DriverName+"-reg.sock"), fail, func(s *grpc.Server) {
		registerapi.RegisterRegistrationServer(s, &registrar{driver: d, socket: socket})
	})
	if err != nil {
		endPlugin()
		return nil, err
	}
	return func() {
		endRegistrar()
		endPlugin()
	}, nil
}

// listen serves on a Unix socket. One that an ended agent has left is taken over.
func listen(path string, fail func(error), register func(*grpc.Server)) (end func(), err error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	s := grpc.NewServer()
	register(s)
	go func() {
		if err := s.Serve(l); err != nil {
			fail(fmt.Errorf("%s: %w", path, err))
		}
	}()
	return s.Stop, nil
}

// A registrar tells kubelet what the driver is.
type registrar struct {
	registerapi.UnimplementedRegistrationServer
	driver *driver
	socket string
}

// GetInfo implements registerapi.RegistrationServer.
func (r *registrar) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{
		Type: registerapi.DRAPlugin, Name: DriverName, Endpoint: r.socket,
		SupportedVersions: []string{draapi.DRAPluginService, health.DRAResourceHealth_ServiceDesc.ServiceName},
	}, nil
}

// NotifyRegistrationStatus implements registerapi.RegistrationServer.
func (r *registrar) NotifyRegistrationStatus(ctx context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	if !s.PluginRegistered {
		r.driver.Log.ErrorContext(ctx, "kubelet does not take the driver", "error", s.Error)
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}

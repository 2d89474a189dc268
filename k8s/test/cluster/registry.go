// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// Registry serves an empty container registry on the control plane's machine until the test ends,
// and returns its HOST:PORT. Nodes reach it, and programs that Shell starts. Its certificate is of
// the cluster's authority. see is called with each request, from several goroutines.
func (c *Cluster) Registry(see func(*http.Request)) (string, error) {
	cred, err := c.ca.issue("registry", nil, Outside)
	if err != nil {
		return "", err
	}
	certificate, err := tls.X509KeyPair(cred.certificate, cred.key)
	if err != nil {
		return "", err
	}
	address := net.JoinHostPort(Outside, "5000")
	var at net.Listener
	if err := c.Control.InNetNS(func() (err error) {
		at, err = net.Listen("tcp", address)
		return err
	}); err != nil {
		return "", err
	}
	// The library holds a lock while it reads a blob. Two uploads on one connection of HTTP/2 would then
	// wait for each other: the one without the lock fills the connection's window.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	quiet := log.New(io.Discard, "", 0)
	handler := registry.New(registry.Logger(quiet), registry.WithReferrersSupport(true))
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			see(r)
			handler.ServeHTTP(w, r)
		}),
		Protocols: &protocols, ErrorLog: quiet, ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
	}
	c.t.Cleanup(func() { server.Close() })
	go server.ServeTLS(at, "", "")
	return address, nil
}
